"""Configuration objects alone: what they accept, refuse and say."""

from common import tell
from smdebug import CollectionKeys, ReductionConfig, SaveConfig, SaveConfigMode, modes
from smdebug.core.collection import Collection, DEFAULT_PYTORCH_COLLECTIONS, NON_REDUCTION_COLLECTIONS
from smdebug.core.collection_manager import CollectionManager
from smdebug.core.reductions import get_reduction_tensor_name, reverse_reduction_tensor_name
from smdebug.analysis.utils import parse_bool, parse_list_from_str
import smdebug.exceptions as exceptions


def outcome(function, *args, **kwargs):
    try:
        return function(*args, **kwargs)
    except Exception as error:
        return type(error).__name__


def steps(**kwargs):
    config = SaveConfigMode(**kwargs)
    return [s for s in range(2001) if config.should_save_step(s)]


found = {
    "schedules": [steps(), steps(save_interval="700"), steps(save_interval=100, end_step=200),
                  steps(save_interval=100, end_step=201), steps(save_interval=100, start_step=150, end_step=400),
                  steps(save_steps=[3, 7]), steps(save_steps=[3], end_step=0), steps(end_step=0)],
    "refused": [outcome(SaveConfigMode, save_interval="x"), outcome(SaveConfigMode, save_steps="1,2"),
                outcome(SaveConfig, {"TRAIN": SaveConfigMode()}), outcome(SaveConfig.parse, 5),
                outcome(ReductionConfig, reductions=["median"]), outcome(ReductionConfig, norms=["l3"]),
                outcome(ReductionConfig, save_raw_tensor="yes"),
                outcome(Collection("x").include, 5), outcome(CollectionManager().get, "none", create=False)],
    "json": [SaveConfig(save_interval=3).to_json_dict(),
             SaveConfig({modes.TRAIN: SaveConfigMode(2)}).to_json_dict(),
             ReductionConfig(["min"], ["mean"], ["l1"], ["l2"], save_raw_tensor=True).to_json_dict(),
             Collection("x", include_regex=["a", "b"], save_config=SaveConfig(save_interval=2)).to_json_dict()],
    "equal": [SaveConfig(save_interval=3) == SaveConfig(save_interval=3), SaveConfig() == SaveConfig(save_interval=3),
              SaveConfig.from_json(SaveConfig(save_interval=3).to_json()) == SaveConfig(save_interval=3),
              Collection.from_json(Collection("x", include_regex=["a"]).to_json()) == Collection("x", include_regex=["a"])],
    "keys": sorted(v for k, v in vars(CollectionKeys).items() if not k.startswith("_")),
    "sets": [sorted(DEFAULT_PYTORCH_COLLECTIONS), sorted(NON_REDUCTION_COLLECTIONS)],
    "mode": [[m.name for m in modes]],
    "names": [get_reduction_tensor_name("a:0", "mean", True, True),
              list(reverse_reduction_tensor_name("smdebug/reductions/abs_l2/gradient/x"))],
    "text": [parse_list_from_str("a, b,c"), parse_bool("True", False), parse_bool(None, True)],
    "manager": sorted(CollectionManager().get_collections()),
    "exceptions": {name: sorted(b.__name__ for b in value.__mro__ if b.__name__ in ("ValueError", "TypeError", "RuntimeError", "SMDebugError"))
                   for name, value in vars(exceptions).items()
                   if isinstance(value, type) and issubclass(value, Exception) and name.startswith("SMDebug")},
    "attributes": [vars(exceptions.NoMoreData(3, modes.TRAIN, 2)).get("last_step"),
                   exceptions.TensorUnavailableForStep("t", 3).step, exceptions.InvalidWorker("w").worker],
}
tell(found)
