// Package check holds the tests of contrib/kubernetes. It is a module of its own,
// so that kustomize and the Kubernetes types are nothing that sgpatch depends on.
package check

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// leaderWorkerSet is what leaderworkerset.x-k8s.io/v1 looks like, as far as the
// example goes: its own Go types could not be had. The pod templates are the API's.
type leaderWorkerSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Replicas int32 `json:"replicas"`
		Template struct {
			Size          int32                  `json:"size"`
			RestartPolicy string                 `json:"restartPolicy"`
			Leader        corev1.PodTemplateSpec `json:"leaderTemplate"`
			Worker        corev1.PodTemplateSpec `json:"workerTemplate"`
		} `json:"leaderWorkerTemplate"`
	} `json:"spec"`
}

// objects are the resources of an example.
type objects struct {
	Deployment appsv1.Deployment
	Set        leaderWorkerSet
}

// pods are all pods in which SGLang runs.
func (o *objects) pods() []*corev1.PodSpec {
	return []*corev1.PodSpec{&o.Deployment.Spec.Template.Spec, &o.Set.Spec.Template.Leader.Spec, &o.Set.Spec.Template.Worker.Spec}
}

func kustomize(dir string) (string, error) {
	out, err := exec.Command("go", "tool", "kustomize", "build", dir).Output()
	var ee *exec.ExitError
	if errors.As(err, &ee) {
		err = fmt.Errorf("%w: %s", err, ee.Stderr)
	}
	return string(out), err
}

// build runs kustomize and decodes what it prints: an unknown field, or one that
// stands twice, is an error.
func build(t *testing.T, dir string) (o objects) {
	t.Helper()
	text, err := kustomize(dir)
	if err != nil {
		t.Fatal(err)
	}
	into := map[string]any{"apps/v1 Deployment": &o.Deployment, "leaderworkerset.x-k8s.io/v1 LeaderWorkerSet": &o.Set}
	for _, doc := range strings.Split(text, "\n---\n") {
		var meta metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(doc), &meta); err != nil {
			t.Fatal(err)
		}
		kind := meta.APIVersion + " " + meta.Kind
		if into[kind] == nil {
			t.Fatalf("%s: there is a second %q, or nobody knows it", dir, kind)
		}
		if err := yaml.UnmarshalStrict([]byte(doc), into[kind]); err != nil {
			t.Errorf("%s: %s: %v", dir, kind, err)
		}
		delete(into, kind)
	}
	if len(into) > 0 {
		t.Fatalf("%s: not built: %v", dir, into)
	}
	return o
}

// TestVerify: the component puts three words in front of each command that
// starts SGLang, and changes nothing else.
func TestVerify(t *testing.T) {
	want := build(t, "../example/base")
	for _, pod := range want.pods() {
		c := &pod.Containers[0]
		c.Command = append([]string{"sgpatch", "verify", "--"}, c.Command...)
	}
	if d := cmp.Diff(want, build(t, "../example/verify")); d != "" {
		t.Error(d)
	}
}

// TestApply: in each pod one volume, one initContainer, one mount, and the command.
func TestApply(t *testing.T) {
	want := build(t, "../example/base")
	mount := corev1.VolumeMount{Name: "sgpatch", MountPath: "/opt/sgpatch"}
	for _, pod := range want.pods() {
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "sgpatch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
		pod.InitContainers = []corev1.Container{{Name: "sgpatch", Image: "sgpatch:0.1.0-copy", Command: []string{"cp", "/sgpatch", "/opt/sgpatch/sgpatch"}, VolumeMounts: []corev1.VolumeMount{mount}}}
		c := &pod.Containers[0]
		c.Command = append([]string{"/bin/sh", "-c", `/opt/sgpatch/sgpatch apply && exec /opt/sgpatch/sgpatch verify -- "$@"`, "sgpatch"}, c.Command...)
		readOnly := mount
		readOnly.ReadOnly = true
		c.VolumeMounts = append(c.VolumeMounts, readOnly)
	}
	if d := cmp.Diff(want, build(t, "../example/apply")); d != "" {
		t.Error(d)
	}
}

// TestOtherForms: a pod that a component does not fit fails the build, and a
// resource without the label is left alone.
func TestOtherForms(t *testing.T) {
	own := "      initContainers:\n      - {name: own, image: example.invalid/own:1}\n      containers:\n      - name: sglang"
	worker := "    workerTemplate:\n      spec:\n        containers:\n        - name: "
	for _, c := range []struct{ name, component, old, new, says string }{
		{"one template of two", "verify", worker + "sglang", worker + "other", "testing value"},
		{"one template of two", "apply", worker + "sglang", worker + "other", "testing value"},
		{"no template for the leader", "verify", "leaderTemplate:", "other:", "leaderTemplate"},
		{"another container first", "verify", "- name: sglang\n", "- name: proxy\n", "testing value"},
		{"no command", "verify", "        command: [python3, -m, sglang.launch_server]\n", "", "command/0"},
		{"another container first", "apply", "- name: sglang\n", "- name: proxy\n", "testing value"},
		{"an initContainer of its own", "apply", "      containers:\n      - name: sglang", own, "initContainers"},
		{"no label", "apply", "sgpatch: wrap", "other: label", ""},
	} {
		t.Run(c.component+" "+c.name, func(t *testing.T) {
			dir := t.TempDir()
			example := "../example/base/deployment.yaml"
			if strings.Contains(c.name, "template") {
				example = "../example/base/leaderworkerset.yaml"
			}
			text, err := os.ReadFile(example)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), c.old) {
				t.Fatalf("the example has no %q", c.old)
			}
			component, err := os.ReadFile(filepath.Join("..", c.component, "kustomization.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			for name, text := range map[string]string{
				"base/object.yaml":             strings.Replace(string(text), c.old, c.new, 1),
				"component/kustomization.yaml": string(component),
				"kustomization.yaml":           "resources: [base/object.yaml]\ncomponents: [component]\n",
			} {
				path := filepath.Join(dir, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			got, err := kustomize(dir)
			if c.says != "" {
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Fatalf("%v\n%s", err, got)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(got, "sgpatch") {
				t.Errorf("without the label it is changed all the same:\n%s", got)
			}
		})
	}
}
