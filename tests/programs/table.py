"""Which programs there are, where each runs, and what its run must hold."""

from __future__ import annotations

import dataclasses

#: Environments (.venv-NAME; "" is .venv itself). All but the last run programs with every change; that one with make test-programs.
MAIN, HF, PROGRAMS = "", "hf", "programs"

BACKWARD = "backward_loss"
CROSS_ENTROPY = "CrossEntropyLoss_output_0"


@dataclasses.dataclass(frozen=True)
class Program:
    """:param script: of trainings/, without .py
    :param arguments: FOLDER stands for one that is the program's own
    :param train: the tensor whose TRAIN values are the losses that the program says; "" where it has none to say
    :param evaluated: the same of EVAL values
    :param exact: said and recorded are one number; else one is a mean that somebody computed in other places
    :param roots: what names of parameters begin with
    :param frozen: some parameters have no gradient, for they are not trained
    """

    script: str
    arguments: tuple[str, ...] = ()
    where: tuple[str, ...] = (PROGRAMS,)
    train: str = BACKWARD
    evaluated: str = ""
    exact: bool = True
    roots: tuple[str, ...] = ()
    frozen: bool = False

    @property
    def name(self) -> str:
        return "-".join([self.script, *(a for a in self.arguments if a != "FOLDER")])


def trainer(setting: str, *where: str, **more) -> Program:
    wanted = {"exact": False, "train": BACKWARD, "roots": ("GPT2LMHeadModel",), **more}
    return Program("hf_trainer", (setting, "FOLDER"), where=(*where, PROGRAMS), **wanted)


ALL = [
    trainer("plain"),
    trainer("accumulated", HF, evaluated=CROSS_ENTROPY),
    trainer("smoothed", HF, evaluated=BACKWARD),
    trainer("checkpointed", evaluated=CROSS_ENTROPY),
    trainer("compiled", evaluated=CROSS_ENTROPY),
    trainer("adafactor"),
    Program("trl_sft", ("FOLDER",), exact=False, evaluated=BACKWARD, roots=("GPT2LMHeadModel",)),
    Program("trl_dpo", ("FOLDER",), exact=False, evaluated=BACKWARD, roots=("GPT2LMHeadModel",)),
    Program("trl_reward", ("FOLDER",), exact=False, evaluated=BACKWARD, roots=("GPT2ForSequenceClassification",)),
    Program("trl_grpo", ("FOLDER",), exact=False, roots=("GPT2LMHeadModel",)),
    Program("peft_lora", train=CROSS_ENTROPY, evaluated=CROSS_ENTROPY, roots=("PeftModelForCausalLM",), frozen=True),
    Program("litgpt_fabric", train=CROSS_ENTROPY, evaluated=CROSS_ENTROPY, exact=False, roots=("GPT",)),
    Program("diffusers_unet", train="MSELoss_output_0", evaluated="MSELoss_output_0", roots=("UNet2DModel",)),
    # An actor and two critics; the coefficient of entropy is a parameter that no module has. The critics' loss is said.
    Program("sb3_agent", ("sac",), train="backward_loss_1", roots=("SACPolicy", "Actor", "ContinuousCritic", "parameter_0"), frozen=True),
    Program("sb3_agent", ("td3",), roots=("TD3Policy",), frozen=True),
    Program("sb3_agent", ("a2c",), train="MSELoss_output_0", roots=("ActorCriticPolicy",)),
    Program("sb3_agent", ("ppo",), train="", roots=("ActorCriticPolicy",)),
    Program("pyg_gcn", train=CROSS_ENTROPY, evaluated=CROSS_ENTROPY, roots=("GCN",)),
    Program("sentence_transformers_ranking", ("FOLDER",), evaluated=BACKWARD, exact=False, roots=("MultipleNegativesRankingLoss",)),
    Program("skorch_net", train=CROSS_ENTROPY, evaluated=CROSS_ENTROPY, roots=("Net",)),
    Program("ignite_engine", train=CROSS_ENTROPY, evaluated=CROSS_ENTROPY, exact=False, roots=("Sequential",)),
    Program("darts_nbeats", ("FOLDER",), train="MSELoss_output_0", roots=("_NBEATSModule",)),
    Program("deepspeed_zero", ("0",), train=CROSS_ENTROPY, evaluated=CROSS_ENTROPY, roots=("Net",)),
    Program("deepspeed_zero", ("1",), train=CROSS_ENTROPY, evaluated=CROSS_ENTROPY, roots=("Net",)),
    Program("optuna_study", train=CROSS_ENTROPY, evaluated=CROSS_ENTROPY, roots=("Sequential",)),
]

#: sklearn_search.py: what it is told, and the metric that its boosters minimize. Each fit is a run of its own.
SEARCHES = {"xgboost": "logloss", "lightgbm": "binary_logloss"}
FITS = 5       # two depths, two folds, and the best one once more
