"""What stands for SageMaker's XGBoost image where it is given no script, without the service around it."""

import importlib.util
import json
import os
import pathlib
import signal

import pytest

xgboost = pytest.importorskip("xgboost")
np = pytest.importorskip("numpy")

HOME = pathlib.Path(os.environ.get("TDBG_HOME", pathlib.Path(__file__).resolve().parents[2] / "python"))
ROWS = [f"{2 * a + b},{a},{b}" for a in range(12) for b in range(6)]


@pytest.fixture(scope="module")
def algorithm():
    spec = importlib.util.spec_from_file_location("algorithm", HOME / "tdbg/container/xgboost_algorithm.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    before = signal.getsignal(signal.SIGTERM)
    yield module
    signal.signal(signal.SIGTERM, before)


class Container:
    """What lies in /opt/ml."""

    def __init__(self, root):
        self.root = root
        for below in ("input/config", "input/data", "model", "output", "checkpoints"):
            (root / below).mkdir(parents=True)
        self.write("inputdataconfig.json", {})

    def write(self, name, value):
        (self.root / "input/config" / name).write_text(json.dumps(value))

    def channel(self, name, content_type, files):
        described = json.loads((self.root / "input/config/inputdataconfig.json").read_text())
        self.write("inputdataconfig.json", {**described, name: {"ContentType": content_type} if content_type else {}})
        (self.root / "input/data" / name).mkdir()
        for file, text in files.items():
            (self.root / "input/data" / name / file).write_text(text)
        return self

    def parameters(self, **named):
        self.write("hyperparameters.json", {"num_round": "4", "max_depth": "2", **named})
        return self

    def failure(self):
        return (self.root / "output/failure").read_text()


@pytest.fixture
def container(tmp_path):
    return Container(tmp_path / "ml")


def libsvm(rows):
    return "\n".join(" ".join([label, *(f"{i + 1}:{v}" for i, v in enumerate(rest))])
                     for label, *rest in (row.split(",") for row in rows))


def test_csv_and_libsvm_are_the_same_rows(algorithm, container, tmp_path, capfd):
    """Several files, names that mean something to XGBoost's addresses, a file that is none of the data, an empty cell."""
    container.channel("train", "text/csv; label_size=1", {"a": "\n".join(ROWS[:40]), "b#1": "\n".join([*ROWS[40:], "3,,1"]),
                                                          "_SUCCESS": "", ".hidden": "x"})
    container.channel("validation", "csv", {"v": "\n".join(ROWS[:10])}).parameters(eval_metric="rmse,mae", silent="1")
    assert algorithm.main([str(container.root)]) == 0
    said = capfd.readouterr().out
    assert "[3]\ttrain-rmse:" in said and "validation-mae:" in said and "verbosity 0 in its place" in said
    data = algorithm.load(container.root / "input/data/train", "csv", False)
    assert data.num_row() == len(ROWS) + 1 and np.isnan(data.get_data().toarray()).sum() == 0 and data.num_nonmissing() % 2 == 1
    booster = xgboost.Booster()
    booster.load_model(bytearray((container.root / "model/xgboost-model").read_bytes()))
    assert booster.num_boosted_rounds() == 4

    other = Container(tmp_path / "other")
    other.channel("train", "", {"a#1": libsvm(ROWS[:40]), "b?2": libsvm(ROWS[40:])})
    rows = algorithm.load(other.root / "input/data/train", "text/libsvm", False)
    assert rows.num_row() == len(ROWS) and list(rows.get_label()) == [float(row.split(",")[0]) for row in ROWS]


def test_weights_of_csv(algorithm, container):
    container.channel("train", "csv", {"a": "\n".join(f"{i},{i % 3},{i}" for i in range(30))})
    data = algorithm.load(container.root / "input/data/train", "csv", True)
    assert data.num_col() == 1 and list(data.get_weight()) == [i % 3 for i in range(30)]


def test_a_training_goes_on_from_its_last_checkpoint(algorithm, container, capfd):
    container.channel("train", "csv", {"a": "\n".join(ROWS)}).parameters(num_round="7")
    container.write("checkpointconfig.json", {"LocalPath": str(container.root / "checkpoints")})
    assert algorithm.main([str(container.root)]) == 0
    kept = sorted(path.name for path in (container.root / "checkpoints").iterdir())
    assert kept == [f"xgboost-checkpoint.{i}" for i in range(2, 7)]
    assert algorithm.main([str(container.parameters(num_round="9").root)]) == 0
    assert "goes on from xgboost-checkpoint.6, after 7 of 9 rounds" in capfd.readouterr().out
    assert algorithm.last_checkpoint(container.root / "checkpoints")[1] == 9
    assert algorithm.main([str(container.root)]) == 0     # there is nothing left to train: the model is the last checkpoint's
    booster = xgboost.Booster()
    booster.load_model(bytearray((container.root / "model/xgboost-model").read_bytes()))
    assert booster.num_boosted_rounds() == 9


@pytest.mark.parametrize(("booster", "rounds"), [("gbtree", 1), ("gblinear", 4)])
def test_where_patience_runs_out_the_model_is_the_best_one(algorithm, container, booster, rounds):
    """What is learned makes the validation worse from the first round on."""
    container.channel("train", "csv", {"a": "\n".join(f"{i},{i}" for i in range(40))})
    container.channel("validation", "csv", {"v": "\n".join(f"{-i},{i}" for i in range(40))})
    container.write("hyperparameters.json", {"num_round": "50", "early_stopping_rounds": "3", "booster": booster, "base_score": "0"})
    assert algorithm.main([str(container.root)]) == 0
    model = xgboost.Booster()
    model.load_model(bytearray((container.root / "model/xgboost-model").read_bytes()))
    assert model.num_boosted_rounds() == rounds


@pytest.mark.parametrize("kept", ["true", "false"])
def test_sigterm_ends_it_after_a_round(algorithm, container, monkeypatch, kept):
    container.channel("train", "csv", {"a": "\n".join(ROWS)}).parameters(num_round="100000", save_model_on_termination=kept)
    after = algorithm.Rounds.after_iteration

    def third(self, model, epoch, evals_log):
        if epoch == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return after(self, model, epoch, evals_log)

    monkeypatch.setattr(algorithm.Rounds, "after_iteration", third)
    assert algorithm.main([str(container.root)]) == 0
    assert (container.root / "model/xgboost-model").exists() == (kept == "true")


@pytest.mark.parametrize(("parameters", "content_type", "text", "said"), [
    ({"etaa": "0.2"}, "csv", "1,2", "etaa: XGBoost has none of this name; did you mean eta?"),
    ({"num_round": "0"}, "csv", "1,2", "num_round: found '0', expected a whole number of 1 or more"),
    ({"num_round": "3.5"}, "csv", "1,2", "num_round: found '3.5'"),
    ({"eta": "nan"}, "csv", "1,2", "eta: found 'nan', expected a number from 0 to 1"),
    ({"objective": "multi:softmax"}, "csv", "1,2", "num_class is missing"),
    ({"early_stopping_rounds": "3"}, "csv", "1,2\n2,3", "early_stopping_rounds: it needs a channel validation"),
    ({}, "csv", "rings,length\n1,2", "channel train: a: found 'rings' in the first line"),
    ({}, "csv", "1,2\n1,2,3", "channel train: a: "),
    ({}, "csv", "1,2\n1,abc", "channel train: a: "),
    ({}, "csv", "1\n2", "channel train: found 1 columns, expected a label and features"),
    ({}, "libsvm", "this is none", "channel train: "),
    ({}, "application/x-parquet", "PAR1", "'application/x-parquet' is not offered here; accepted: text/csv, text/libsvm"),
])
def test_what_its_user_got_wrong_is_said(algorithm, container, parameters, content_type, text, said):
    container.channel("train", content_type, {"a": text}).parameters(**parameters)
    assert algorithm.main([str(container.root)]) == 1
    assert container.failure().startswith("ClientError: ") and said in container.failure()
    assert not list((container.root / "model").iterdir())


def test_without_the_channel_train(algorithm, container):
    assert algorithm.main([str(container.parameters().root)]) == 1
    assert "channel train is missing" in container.failure()


def test_what_estimators_send_as_json_is_read_as_they_mean_it(algorithm):
    assert algorithm.decoded({"objective": '"reg:squarederror"', "eta": "0.2", "sagemaker_region": '"x"', "a": "true"}) == {
        "objective": "reg:squarederror", "eta": "0.2", "a": "true"}
