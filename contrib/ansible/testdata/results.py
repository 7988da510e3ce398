"""Callback of the tests: writes each result of a task as one line of JSON."""

import json
import os

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: results
type: aggregate
short_description: each result as one line of JSON
description: Appends to the file that SGPATCH_RESULTS names.
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "results"
    CALLBACK_NEEDS_ENABLED = True

    def write(self, result, outcome):
        line = {"host": result._host.get_name(), "task": result._task.get_name(), "outcome": outcome}
        line["result"] = {k: v for k, v in result._result.items() if k != "invocation"}
        with open(os.environ["SGPATCH_RESULTS"], "a", encoding="utf-8") as out:
            out.write(json.dumps(line, default=str) + "\n")

    def v2_runner_on_ok(self, result):
        self.write(result, "ok")

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self.write(result, "failed")

    def v2_runner_on_skipped(self, result):
        self.write(result, "skipped")

    def v2_runner_on_unreachable(self, result):
        self.write(result, "unreachable")
