#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: patch sets of an installed SGLang. It runs sgpatch and retells its report."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: sgpatch
short_description: Patch an installed SGLang, judge the patch, take it out
version_added: "0.1.0"
description:
  - Runs C(sgpatch) on the host and turns its report (C(--json)) into the result of the task.
  - The program itself has to be there already; the role C(sgpatch) brings it along.
  - A task is changed only if bytes on the host changed, or with C(--check) would change.
    Bytecode that hid the patch, a commit that was interrupted and is settled now, and records
    that are taken away count as such. O(state=verified) changes nothing, ever.
  - With C(--diff) the differences are shown. They hold lines of C(sitecustomize.py); set
    C(diff=false) on the task if those must not be seen.
author:
  - sgpatch maintainers
requirements:
  - Python 3.8 or later on the host
  - sgpatch 0.1.0 or later on the host
options:
  state:
    description:
      - V(applied) puts the sets in place, all of them or nothing.
      - V(reverted) takes them out again, byte for byte.
      - V(verified) judges code, bytecode and environment, and fails if they do not hold.
    type: str
    choices: [applied, reverted, verified]
    default: applied
  sets:
    description:
      - Ids of patch sets.
      - Without one, V(applied) means C(force-custom-ar-pcie), the other states all sets that are in place.
    type: list
    elements: str
    default: []
  executable:
    description:
      - The program, as a path or a name to look for on PATH and in C(/usr/local/bin).
    type: path
    default: sgpatch
  python:
    description:
      - The interpreter that will start the server.
      - Name it wherever you can. Without it, and without O(root), sgpatch takes the first C(python3) or
        C(python) on the PATH of the task that has sglang.
    type: path
  root:
    description:
      - The directory of the install. Alone it is taken without asking an interpreter.
      - With O(python) as well, that interpreter judges and says where the entry goes.
    type: path
  sitecustomize:
    description:
      - With O(root), the file for the environment entry.
      - With O(state=reverted), a file to take an older entry out of.
    type: path
  patches:
    description:
      - Folders on the host with patch sets of your own.
    type: list
    elements: path
    default: []
  env:
    description:
      - Other values for entries of these sets. Later runs keep them. Only with O(state=applied).
      - They are written in plain text and shown; they are no place for a secret.
    type: dict
    default: {}
  no_env:
    description:
      - Code only, no entry in C(sitecustomize.py). Only with O(state=applied).
    type: bool
    default: false
  listed_only:
    description:
      - Refuse contents that are not in the release table. Only with O(state=applied).
    type: bool
    default: false
  check:
    description:
      - Run the behaviour check on listed contents, too. Only with O(state=applied).
    type: bool
    default: false
  allow_check:
    description:
      - Let the C(check.py) of your own sets run on the host. Only with O(state=applied).
    type: bool
    default: false
  reason:
    description:
      - Why, for the records. Not with O(state=verified).
    type: str
  result:
    description:
      - What was measured, for the records. Only with O(state=reverted).
    type: str
  purge:
    description:
      - Take the records (C(.sgpatch)) away as well. Only with O(state=reverted).
    type: bool
    default: false
  fast:
    description:
      - Start no interpreter, use what the last apply recorded. Only with O(state=verified).
    type: bool
    default: false
  p2p:
    description:
      - Ask the CUDA driver whether every pair of GPUs reaches its peer. Only with O(state=verified).
    type: bool
    default: false
  lock_timeout:
    description:
      - How long to wait for another sgpatch, as V(60s) or V(2m).
    type: str
    default: 10s
  chdir:
    description:
      - The directory to run in. Paths that are not absolute start there.
      - V(verified) asks the interpreter from there, as a server that starts there would, and sees a
        folder C(sglang) that would come first. Name the working directory of the server.
    type: path
    default: /
attributes:
  check_mode:
    description: Runs C(sgpatch --dry-run). V(verified) runs as always, it only reads.
    support: full
  diff_mode:
    description: Runs C(sgpatch --diff) and shows the differences.
    support: full
"""

EXAMPLES = r"""
- name: Put the set in place for the interpreter that starts the server
  sgpatch:
    python: /opt/venv/bin/python
    reason: trial on PCIe boxes

- name: Judge it as the server will see it
  sgpatch:
    state: verified
    python: /opt/venv/bin/python

- name: Two sets, one with another value, nothing but published contents
  sgpatch:
    sets: [force-custom-ar-pcie, nccl-pcie]
    python: /opt/venv/bin/python
    listed_only: true
    env:
      NCCL_PROTO: Simple

- name: Take out all that is in place, and the records
  sgpatch:
    state: reverted
    python: /opt/venv/bin/python
    result: 38.3 tok/s, was 82
    purge: true
"""

RETURN = r"""
report:
  description:
    - The whole report of sgpatch, as C(docs/report.schema.json) describes it.
  returned: when the program printed one
  type: dict
  sample:
    schema: 1
    command: apply
    exit: 0
    host: gpu-1
    sets: []
    findings: []
    dry_run: false
    changed: [/opt/venv/lib/python3.12/site-packages/sitecustomize.py]
rc:
  description:
    - The exit code of sgpatch, negative if a signal ended it.
    - 0 done, or it holds; 1 it does not hold; 2 usage; 3 refused, nothing changed; 5 failed, and
      everything put back; 6 failed, and not all could be put back; 130 interrupted.
  returned: when the program ran
  type: int
  sample: 0
msg:
  description: On failure the error, the findings and what to type next.
  returned: on failure
  type: str
stdout:
  description: What the program printed in place of a report.
  returned: when that was no report
  type: str
stderr:
  description: What the program printed on standard error.
  returned: when it printed no report
  type: str
"""

import json
import signal
import subprocess

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.text.converters import to_bytes, to_text

COMMANDS = {"applied": "apply", "reverted": "revert", "verified": "verify"}

# the flags that do not go with every command
ONLY = {
    "reason": ("applied", "reverted"),
    "env": ("applied",),
    "no_env": ("applied",),
    "listed_only": ("applied",),
    "check": ("applied",),
    "allow_check": ("applied",),
    "result": ("reverted",),
    "purge": ("reverted",),
    "fast": ("verified",),
    "p2p": ("verified",),
}

# Findings that tell of bytes outside the files in "changed": what a killed
# command left was settled or, dry, would be; the records went.
SETTLING = {"recovered", "interrupted", "purged"}

MEANING = {
    1: "it does not hold",
    2: "sgpatch was called in a way that it does not know",
    3: "refused",
    5: "failed",
    6: "failed, and not all could be put back",
    130: "interrupted",
}
UNCHANGED = {3: ", nothing was changed", 5: ", and everything was put back"}


def spec():
    return {
        "state": {"type": "str", "choices": list(COMMANDS), "default": "applied"},
        "sets": {"type": "list", "elements": "str", "default": []},
        "executable": {"type": "path", "default": "sgpatch"},
        "python": {"type": "path"},
        "root": {"type": "path"},
        "sitecustomize": {"type": "path"},
        "patches": {"type": "list", "elements": "path", "default": []},
        "env": {"type": "dict", "default": {}},
        "no_env": {"type": "bool", "default": False},
        "listed_only": {"type": "bool", "default": False},
        "check": {"type": "bool", "default": False},
        "allow_check": {"type": "bool", "default": False},
        "reason": {"type": "str"},
        "result": {"type": "str"},
        "purge": {"type": "bool", "default": False},
        "fast": {"type": "bool", "default": False},
        "p2p": {"type": "bool", "default": False},
        "lock_timeout": {"type": "str", "default": "10s"},
        "chdir": {"type": "path", "default": "/"},
    }


def validate(params):
    """What an argument spec cannot say, as a message, or None."""
    for name in params["sets"]:
        if not name or name.startswith("-"):
            return "sets: %r is not the id of a patch set" % name
    for name in ("executable", "python", "root", "sitecustomize", "chdir"):
        if params[name] == "":
            return "%s is empty: name a path, or leave it out" % name
    if "" in params["patches"]:
        return "patches: one of the folders is empty"
    for name, value in params["env"].items():
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            return "env: the value of %s is %r: write it in quotes" % (name, value)
    for name, states in ONLY.items():
        if params[name] and params["state"] not in states:
            return "%s goes with state %s, not with %s" % (name, " or ".join(states), params["state"])
    return None


def flags(params, check_mode, diff):
    """The command line behind the program's name. Every value stands in one word with its flag."""
    line = [COMMANDS[params["state"]], "--json", "--lock-timeout=" + params["lock_timeout"]]
    for name in ("python", "root", "sitecustomize", "reason", "result"):
        if params[name] is not None:
            line.append("--%s=%s" % (name, params[name]))
    line += ["--patches=" + folder for folder in params["patches"]]
    line += ["--env=%s=%s" % entry for entry in sorted(params["env"].items())]
    for name in ("no_env", "listed_only", "check", "allow_check", "purge", "fast", "p2p"):
        if params[name]:
            line.append("--" + name.replace("_", "-"))
    if check_mode and params["state"] != "verified":
        line.append("--dry-run")
    if diff and params["state"] != "verified":
        line.append("--diff")
    return line + params["sets"]


def parse(text, command):
    """The report in what the program printed, or None if that is not one."""
    try:
        report = json.loads(text)
    except ValueError:
        return None
    shape = {"schema": int, "command": str, "exit": int, "changed": list, "findings": list}
    if not isinstance(report, dict) or not all(isinstance(report.get(k), t) for k, t in shape.items()):
        return None
    if (report["schema"], report["command"]) != (1, command) or not all(isinstance(f, dict) for f in report["findings"]):
        return None
    return report


def sentence(finding):
    words = finding.get("message", "")
    return words + "\nnext: " + finding["hint"] if finding.get("hint") else words


def explain(report):
    """Why it failed: the error, every finding that says more, and the way out of each."""
    parts = [sentence({"message": report["error"], "hint": report.get("hint")})] if report.get("error") else []
    for finding in report["findings"]:
        tells = finding.get("severity") == "error" or finding.get("code") in SETTLING
        if tells and finding.get("message") not in (report.get("error"), None):
            parts.append(sentence(finding))
    meaning = MEANING.get(report["exit"], "exit %d" % report["exit"])
    if not changed(report):
        meaning += UNCHANGED.get(report["exit"], "")
    return "\n".join([meaning + ":"] + parts)


def changed(report):
    """Whether bytes changed. After exit 6 some did, whichever they are."""
    if report["command"] == "verify":
        return False
    codes = {finding.get("code") for finding in report["findings"]}
    return bool(report["changed"]) or report["exit"] == 6 or bool(codes & SETTLING)


def no_report(module, done):
    if done.returncode < 0:
        try:
            name = signal.Signals(-done.returncode).name
        except ValueError:
            name = "signal %d" % -done.returncode
        why = "was ended by %s; the next sgpatch that writes settles what it had begun" % name
    else:
        why = "ended with %d and printed no report: is it sgpatch?" % done.returncode
    module.fail_json(
        msg="%s %s" % (to_text(done.args[0]), why),
        rc=done.returncode,
        stdout=done.stdout[-4000:].decode("utf-8", "replace"),
        stderr=done.stderr[-4000:].decode("utf-8", "replace"),
    )


def main():
    module = AnsibleModule(argument_spec=spec(), supports_check_mode=True)
    params = module.params
    wrong = validate(params)
    if wrong:
        module.fail_json(msg=wrong)
    program = module.get_bin_path(params["executable"], opt_dirs=["/usr/local/bin"])
    if not program:
        module.fail_json(
            msg="there is no program %s on this host: install sgpatch, or name it with executable" % params["executable"]
        )
    line = flags(params, module.check_mode, module._diff)
    try:
        done = subprocess.run(
            [to_bytes(word) for word in [program] + line],
            cwd=to_bytes(params["chdir"]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            check=False,
        )
    except (OSError, ValueError) as error:
        module.fail_json(msg="%s cannot be run: %s" % (program, error))
    report = parse(done.stdout, line[0])
    if report is None or done.returncode < 0:
        no_report(module, done)
    result = {"changed": changed(report), "rc": done.returncode, "report": report}
    if report.get("diff"):
        result["diff"] = {"prepared": report["diff"]}
    for finding in report["findings"]:
        if finding.get("severity") == "warning":
            module.warn(sentence(finding))
    if done.returncode != report["exit"]:
        module.fail_json(msg="%s ended with %d and reports %d" % (program, done.returncode, report["exit"]), **result)
    if done.returncode != 0:
        module.fail_json(msg=explain(report), **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
