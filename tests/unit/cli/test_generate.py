from pathlib import Path

import pytest

from rolecall.cli.main import main

WATCHES = "- {group: test.rolecall.dev, version: v1, kind: Thing, role: thing}\n"
SPECS = """\
argument_specs:
  main:
    short_description: "Serves: things."
    options:
      image_url: {type: str, required: true, description: The image.}
      replicas: {type: int, default: 1, choices: [1, 2]}
      modes: {type: list, elements: str, choices: [yes, "on"]}
      tls:
        type: dict
        options:
          secret_name: {type: str}
          self_signed: {type: bool}
        mutually_exclusive: [[secret_name, self_signed]]
      logs: {type: raw}
    required_if: [[replicas, 2, [tls]]]
"""
CRD = """\
# Written by hand.
apiVersion: v1
kind: List
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.test.rolecall.dev}
spec:
  group: test.rolecall.dev
  names: {kind: Thing} # without a plural
  versions:
    - name: v1alpha1
      served: true
      schema: {openAPIV3Schema: {type: object}}
    - name: v1
      served: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              required: [other, replicas]
              x-kubernetes-validations:
                - rule: self.replicas < 9
                  message: few
              properties:
                # The number.
                replicas:
                  type: integer
                  minimum: 0 # not less
                  description: How many, which the role does not describe.
                imageURL:
                  type: integer
                  maximum: 9
                other: {type: string, default: x}
            # What the operator writes.
            status: {type: object}
"""
GENERATED = """\
          required:
            - spec
          properties:
            spec:
              type: object
              required: [other, imageURL]
              x-kubernetes-validations:
                - rule: self.replicas < 9
                  message: few
                - rule: "!(has(self.replicas) && self.replicas == 2) || has(self.tls)"
                  message: tls must be set if replicas is 2 (required_if)
              properties:
                # The number.
                replicas:
                  type: integer
                  enum:
                    - 1
                    - 2
                  default: 1
                  minimum: 0 # not less
                  description: How many, which the role does not describe.
                modes:
                  type: array
                  items:
                    type: string
                    enum:
                      - "yes"
                      - "on"
                tls:
                  type: object
                  x-kubernetes-validations:
                    - rule: "(has(self.secretName) ? 1 : 0) + (has(self.selfSigned) ? 1 : 0) <= 1"
                      message: at most one of secretName, selfSigned can be set (mutually_exclusive)
                  properties:
                    secretName:
                      type: string
                    selfSigned:
                      type: boolean
                logs:
                  x-kubernetes-preserve-unknown-fields: true
                imageURL:
                  type: string
                  description: The image.
                other: {type: string, default: x}
            # What the operator writes.
            status: {type: object}
"""
FILE = Path("deploy/crds/things.yaml")


def write(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Return a project with one kind as the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rolecall.system.logs.configure", lambda *_: None)  # it is for the life of a process
    write("watches.yaml", WATCHES)
    write("roles/thing/meta/argument_specs.yml", SPECS.replace("[yes,", '["yes",'))
    write(str(FILE), CRD)


def test_fields_follow_arguments_and_everything_written_by_hand_stays(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "crds"]) == 0
    start = CRD.index("          properties:")
    assert FILE.read_text() == CRD[:start] + GENERATED
    changes = """\
34: Thing spec.imageURL: type: string instead of integer
34: Thing spec.imageURL: new description
22: Thing spec.imageURL: required
30: Thing spec.replicas: enum: [1, 2]
30: Thing spec.replicas: default: 1
22: Thing spec.replicas: no longer required
29: Thing spec.modes: new field of type array
29: Thing spec.tls: new field of type object
29: Thing spec.logs: new field of type any
22: Thing spec: new rule: tls must be set if replicas is 2 (required_if)
19: Thing spec: required
"""
    *lines, note, written = capsys.readouterr().out.splitlines()
    assert lines == [f"{FILE}:{line}" for line in changes.splitlines()]
    assert note == f"note: {FILE}:29: Thing spec.other: the role has no argument 'other'"
    assert written == f"Written: {FILE}"


def test_check_prints_changes_and_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "crds", "--check"]) == 2
    assert FILE.read_text() == CRD
    assert f"Out of sync: 'rolecall generate crds' would change {FILE}\n" in capsys.readouterr().out


def test_file_in_sync_keeps_every_byte(capsys: pytest.CaptureFixture[str]) -> None:
    main(["generate", "crds"])
    text = FILE.read_text().replace("kind: List", "kind:    'List'   ")
    FILE.write_text(text)
    capsys.readouterr()
    assert main(["generate", "crds", "Thing"]) == 0
    assert main(["generate", "crds", "--check"]) == 0
    assert FILE.read_text() == text


def test_comment_below_the_last_field_stays_with_its_text() -> None:
    FILE.write_text(
        CRD.replace("                other: {type: string, default: x}\n", "").replace("replicas]", "image]")
    )
    write("roles/thing/meta/argument_specs.yml", "argument_specs: {main: {options: {image_url: {}, a: {}}}}")
    assert main(["generate", "crds"]) == 0
    assert "  # What the operator writes.\n            status:" in FILE.read_text()


def test_rules_and_requirements_that_arguments_lose_are_removed() -> None:
    main(["generate", "crds"])
    write(
        "roles/thing/meta/argument_specs.yml", "argument_specs: {main: {options: {image_url: {}, tls: {type: dict}}}}"
    )
    assert main(["generate", "crds"]) == 0
    text = FILE.read_text()
    assert "message: few" in text
    assert "(required_if)" not in text
    assert "required: [other]" in text


def test_kind_without_file_gets_one_in_the_kustomization() -> None:
    FILE.unlink()
    write("deploy/crds/kustomization.yaml", "resources:\n  - others.yaml\n")
    assert main(["generate", "crds"]) == 0
    assert 'description: "Serves: things."' in FILE.read_text()
    assert "                imageUrl:\n                  type: string\n" in FILE.read_text()
    assert Path("deploy/crds/kustomization.yaml").read_text() == "resources:\n  - others.yaml\n  - things.yaml\n"
    assert main(["generate", "crds", "--check"]) == 0


def test_watch_sets_variables_and_keeps_names() -> None:
    keys = ", vars: {tls: {}}, finalizer: {name: a/b, vars: {logs: x}}, snakeCaseParameters: false}"
    write("watches.yaml", WATCHES.replace("}", keys))
    FILE.unlink()
    assert main(["generate", "crds"]) == 0
    text = FILE.read_text()
    assert "image_url:" in text
    assert "tls:" not in text
    assert "logs:" not in text


PLAYBOOK = """\
- hosts: localhost
  tasks:
    - block:
        - ansible.builtin.include_role: {name: "{{ playbook_dir }}/roles/thing"}
          vars: {logs: all}
"""


def test_only_role_of_a_playbook_determines_the_fields(capsys: pytest.CaptureFixture[str]) -> None:
    write("watches.yaml", WATCHES.replace("role: thing", "playbook: play.yml"))
    write("play.yml", PLAYBOOK)
    FILE.unlink()
    assert main(["generate", "crds"]) == 0
    assert "imageUrl:" in FILE.read_text()
    assert "logs:" not in FILE.read_text()
    write("play.yml", PLAYBOOK + "    - include_role: {name: other}\n")
    assert main(["generate", "crds"]) == 0
    assert "left out: Thing: " in capsys.readouterr().out
    assert main(["generate", "crds", "Thing"]) == 1


@pytest.mark.parametrize(
    ("path", "text", "error"),
    [
        (
            "roles/thing/meta/argument_specs.yml",
            "a: [",
            "Thing: {path}: invalid YAML: ",
        ),
        (
            "roles/thing/meta/argument_specs.yml",
            "{}",
            "Thing: {role}: the role has no argument specs: describe its variables in meta/argument_specs.yml",
        ),
        (
            "roles/thing/meta/argument_specs.yml",
            "argument_specs: {other: {}}",
            "Thing: {path}: argument_specs has no entry point main",
        ),
        (
            "roles/thing/meta/argument_specs.yml",
            "argument_specs: {main: {options: {a: {type: integer}}}}",
            "Thing: {path}: argument_specs.main.options.a: type: expected one of bits, bool",
        ),
        (
            "roles/thing/meta/argument_specs.yml",
            "argument_specs: {main: {options: {imageURL: {}}}}",
            "Thing: spec: no field becomes the variable 'imageURL' in snake case",
        ),
        (str(FILE), "a: [", f"{FILE}: invalid YAML: "),
        (str(FILE), CRD.replace("name: v1\n", "name: v2\n"), f"Thing: {FILE}: Thing has no served version 'v1'"),
        (str(FILE), CRD.replace("imageURL:", "image_url:").replace("other:", "imageUrl:"), "Thing: spec: the fields"),
        (str(FILE), "kind: Other", f"Thing: {FILE}: the file exists without a CRD of the kind Thing"),
        ("watches.yaml", "- 1", "watches.yaml"),
    ],
)
def test_bad_input_is_one_line_with_the_solution(
    path: str, text: str, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(path, text)
    assert main(["generate", "crds"]) == 1
    expected = error.format(path=Path(path).resolve(), role=Path("roles/thing").resolve())
    assert capsys.readouterr().err.startswith(f"rolecall generate crds: {expected}")
    assert FILE.read_text() == (text if path == str(FILE) else CRD)


def test_unknown_kind_is_an_error_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "crds", "Thin"]) == 1
    assert capsys.readouterr().err == (
        "rolecall generate crds: the kind 'Thin' isn't in watches.yaml; did you mean 'Thing'?\n"
    )


def test_nested_default_that_earlier_roles_reject_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    """An object has the default of the new CRD as soon as it is read, before the new role is deployed."""
    assert main(["generate", "crds"]) == 0
    assert "earlier versions" not in capsys.readouterr().out
    nested = "          secret_name: {type: str}\n"
    added = f"{nested}          port: {{type: int, default: 443}}\n          note: {{type: str}}\n"
    write("roles/thing/meta/argument_specs.yml", SPECS.replace('[yes, "on"]', '["yes", "on"]').replace(nested, added))
    assert main(["generate", "crds"]) == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if "earlier versions" in line]
    assert [line.split(": its default gives")[0].split("Thing ")[1] for line in notes] == ["spec.tls.port"]


def test_required_option_that_only_the_finalizer_sets_is_a_field() -> None:
    """Every other run needs it; an optional one, such as a state, is the watch's alone."""
    required = "      where: {type: str, required: true}\n      state: {type: str, default: present}\n"
    specs = SPECS.replace("[yes,", '["yes",').replace("    options:\n", f"    options:\n{required}", 1)
    write("roles/thing/meta/argument_specs.yml", specs)
    write("watches.yaml", WATCHES.replace("}", ", finalizer: {name: a/b, vars: {where: x, state: absent}}}"))
    assert main(["generate", "crds"]) == 0
    assert "where:" in FILE.read_text()
    assert "state:" not in FILE.read_text()
