"""The manifest that docs/cluster.md names. Its commands are run by test_nodes.py."""

import json
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_manifest_is_what_kubernetes_takes():
    validate = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate, which holds Kubernetes' schemas")
    yaml = pytest.importorskip("yaml")
    documents = list(yaml.safe_load_all((ROOT / "examples/kubernetes/two_nodes.yaml").read_text()))
    assert [document["kind"] for document in documents] == ["Service", "Job"]
    for document in documents:
        validate.validate(document, "1.31", strict=True)
    broken = json.loads(json.dumps(documents[1]))
    broken["spec"]["completionmode"] = broken["spec"].pop("completionMode")
    with pytest.raises(validate.ValidationError):
        validate.validate(broken, "1.31", strict=True)


def test_the_manifests_flags_are_those_of_the_program(tdbg):
    """Up to the command, which is not here: both pods' words, with the index that Kubernetes puts in."""
    yaml = pytest.importorskip("yaml")
    job = list(yaml.safe_load_all((ROOT / "examples/kubernetes/two_nodes.yaml").read_text()))[1]
    words = job["spec"]["template"]["spec"]["containers"][0]["command"]
    flags = words[1:words.index("--")]
    nodes = [tdbg.start(*(flag.replace("$(JOB_COMPLETION_INDEX)", str(node)).replace("/runs/train", "r") for flag in flags), "--", "true")
             for node in range(job["spec"]["completions"])]
    assert [node.wait(60) for node in nodes] == [0, 0]
