"""When tensors are saved: smdebug's SaveConfigMode and SaveConfig.

    save(s) = s in save_steps, or (start_step <= s < end_step and s % save_interval == 0)

where s is the step of the mode (of GLOBAL: the global step). The plan has the same rule (src/plan/schedule.cc).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..exceptions import SMDebugTypeError, SMDebugValueError
from ..modes import ModeKeys

DEFAULT_SAVE_CONFIG_INTERVAL = 500
DEFAULT_SAVE_CONFIG_START_STEP = 0
DEFAULT_SAVE_CONFIG_END_STEP = None
DEFAULT_SAVE_CONFIG_SAVE_STEPS: list[int] = []
ALLOWED_PARAMS = ["save_interval", "save_steps", "start_step", "end_step"]


class SaveConfigMode:
    """One mode's schedule. Numbers may be text ("10"); everything is in steps of the mode."""

    def __init__(self, save_interval: int | None = None, start_step: int | None = None, end_step: int | None = None,
                 save_steps: list[int] | None = None) -> None:
        self.save_interval = DEFAULT_SAVE_CONFIG_INTERVAL if save_interval is None else int(save_interval)
        self.start_step = DEFAULT_SAVE_CONFIG_START_STEP if start_step is None else int(start_step)
        self.end_step = None if end_step is None else int(end_step)
        self.save_steps = [] if save_steps is None else save_steps
        if not isinstance(self.save_steps, list) or not all(type(s) is int for s in self.save_steps):
            raise SMDebugValueError(f"save_steps is {save_steps!r}: a list of ints is accepted")
        if self.save_interval < 1:
            raise SMDebugValueError(f"save_interval is {self.save_interval}: steps, at least 1 "
                                    "(end_step=0 switches saving off)")

    def should_save_step(self, step_num: int) -> bool:
        if step_num in self.save_steps:
            return True
        return (self.start_step <= step_num and (self.end_step is None or step_num < self.end_step)
                and step_num % self.save_interval == 0)

    def to_json_dict(self) -> dict[str, Any]:
        return {"save_interval": self.save_interval, "save_steps": self.save_steps, "start_step": self.start_step,
                "end_step": self.end_step}

    @classmethod
    def from_dict(cls, params: Any, default_values: dict[str, Any] | None = None) -> SaveConfigMode:
        """:param default_values: what `params` does not set."""
        params = {**(default_values or {}), **(params or {})}
        unknown = set(params) - set(ALLOWED_PARAMS)
        if unknown:
            raise SMDebugValueError(f"no save parameter {sorted(unknown)[0]!r}: one of {', '.join(ALLOWED_PARAMS)}")
        return cls(**params)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SaveConfigMode) and self.to_json_dict() == other.to_json_dict()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (f"SaveConfigMode(save_interval={self.save_interval}, start_step={self.start_step}, "
                f"end_step={self.end_step}, save_steps={self.save_steps})")


class SaveConfig:
    """The schedules of all modes. Without `mode_save_configs` the other arguments hold for every mode.

    :param mode_save_configs: {ModeKeys: SaveConfigMode or None}; an absent mode, or None, inherits (a collection from
        its hook, a hook from the default).

    `config.end_step = 0` and the like set every mode's.
    """

    save_interval: int
    start_step: int
    end_step: int | None
    save_steps: list[int]

    def __init__(self, mode_save_configs: Mapping[ModeKeys, SaveConfigMode | None] | None = None,
                 save_interval: int | None = None, start_step: int | None = None, end_step: int | None = None,
                 save_steps: list[int] | None = None) -> None:
        if mode_save_configs is None:
            self.mode_save_configs: dict[ModeKeys, SaveConfigMode | None] = {
                mode: SaveConfigMode(save_interval, start_step, end_step, save_steps)
                                      for mode in ModeKeys}
            return
        if not isinstance(mode_save_configs, dict):
            raise SMDebugValueError(f"mode_save_configs is {mode_save_configs!r}: a dict of modes is accepted")
        for mode, config in mode_save_configs.items():
            if not isinstance(mode, ModeKeys) or not (config is None or isinstance(config, SaveConfigMode)):
                raise SMDebugValueError(f"mode_save_configs holds {mode!r}: {config!r}; "
                                        "ModeKeys to SaveConfigMode or None is accepted")
        self.mode_save_configs = {mode: mode_save_configs.get(mode) for mode in ModeKeys}

    def get_save_config(self, mode: ModeKeys) -> SaveConfigMode:
        config = self.mode_save_configs.get(mode)
        if config is None:
            raise SMDebugValueError(f"nothing is set for {mode} in {self!r}: it inherits when the hook prepares")
        return config

    __getitem__ = get_save_config

    def __contains__(self, mode: ModeKeys) -> bool:
        return self.mode_save_configs.get(mode) is not None

    def set_save_config(self, mode: ModeKeys, save_config_mode: Any) -> None:
        if not isinstance(save_config_mode, SaveConfigMode):
            raise SMDebugValueError(f"{save_config_mode!r}: a SaveConfigMode is accepted")
        self.mode_save_configs[mode] = save_config_mode

    def should_save_step(self, mode: ModeKeys, step_num: int) -> bool:
        return self.get_save_config(mode).should_save_step(step_num)

    def merge_default_save_config(self, default_save_config: SaveConfig) -> None:
        """Modes without a schedule take that of `default_save_config`."""
        for mode, config in self.mode_save_configs.items():
            if config is None:
                self.mode_save_configs[mode] = default_save_config.mode_save_configs[mode]

    def to_json_dict(self) -> dict[str, Any]:
        return {mode.name: None if config is None else config.to_json_dict()
                for mode, config in self.mode_save_configs.items()}

    def to_json(self) -> str:
        return json.dumps(self.to_json_dict())

    @classmethod
    def from_json(cls, text: str) -> SaveConfig:
        return cls.from_dict(json.loads(text))

    @classmethod
    def from_dict(cls, params: Any) -> SaveConfig:
        """By mode ({"TRAIN": {...}}), keys as text or ModeKeys; or one schedule for all modes."""
        if params is None or any(key in ALLOWED_PARAMS for key in params):
            return cls(**(params or {}))
        modes = {}
        for key, value in params.items():
            mode = key if isinstance(key, ModeKeys) else ModeKeys[key]
            modes[mode] = SaveConfigMode.from_dict(value) if isinstance(value, dict) else value
        return cls(mode_save_configs=modes)

    @classmethod
    def from_save_config_mode(cls, save_config_mode: Any) -> SaveConfig:
        return cls(mode_save_configs={mode: save_config_mode for mode in ModeKeys})

    @classmethod
    def parse(cls, value: Any) -> SaveConfig | None:
        """None, a SaveConfig, a SaveConfigMode (for all modes), or a dict by mode."""
        if value is None or isinstance(value, SaveConfig):
            return value
        if isinstance(value, SaveConfigMode):
            return cls.from_save_config_mode(value)
        if isinstance(value, dict):
            return cls.from_dict(value)
        raise SMDebugTypeError(f"a save config is {value!r}: SaveConfig, SaveConfigMode or a dict by mode is accepted")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SaveConfig) and self.mode_save_configs == other.mode_save_configs

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"SaveConfig({', '.join(f'{mode.name}: {config}' for mode, config in self.mode_save_configs.items())})"


def _for_every_mode(key: Any) -> property:
    def get(self: Any) -> Any:
        values = [getattr(c, key) for c in self.mode_save_configs.values() if c is not None]
        if not values or any(v != values[0] for v in values):
            raise AttributeError(f"{key} differs from mode to mode: get_save_config(mode).{key}")
        return values[0]

    def put(self: Any, value: Any) -> None:
        for mode, config in self.mode_save_configs.items():
            given = {} if config is None else config.to_json_dict()
            self.mode_save_configs[mode] = SaveConfigMode(**{**given, key: value})

    return property(get, put, doc=f"{key} of every mode.")


for _key in ALLOWED_PARAMS:
    setattr(SaveConfig, _key, _for_every_mode(_key))
