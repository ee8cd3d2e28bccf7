"""What becomes of each public name of smdebug's and of sagemaker.debugger's: the one table.

docs/migrating-from-smdebug.md says the same in more words; tests/python/test_migrate_names.py compares the two, name by
name, verdict by verdict, and reason by reason.
"""

from __future__ import annotations

from typing import NamedTuple

SAME, BETTER, DIFFERS = "same", "better", "differs"  # runs unchanged
BECOMES, NOT_OFFERED = "becomes", "not offered"
UNKNOWN = "unknown"  # in no row

JOBS, HOOK, TRIALS, REST = "Jobs", "Hook", "Trials and tensors", "Not offered"


class Row(NamedTuple):
    """Some names of which the same holds."""

    section: str  # the document's heading, without what is in brackets
    verdict: str
    names: str  # separated by spaces
    why: str = ""  # empty where nothing changes for a program that runs


class Verdict(NamedTuple):
    verdict: str
    why: str


ROWS: tuple[Row, ...] = (
    # Jobs
    Row("Jobs", BECOMES,
        "PyTorch TensorFlow MXNet XGBoost HuggingFace SKLearn Estimator",
        "`tdbg run -- python ENTRY_POINT`, the hyperparameters as arguments"),
    Row("Jobs", BECOMES, "create_training_job", "`tdbg run -- python ENTRY_POINT`, the hyperparameters as arguments"),
    Row("Jobs", BECOMES, "Rule.sagemaker rule_configs", "`--rule NAME KEY=VALUE`"),
    Row("Jobs", BECOMES,
        "Rule.custom",
        "`--rule-file FILE:CLASS KEY=VALUE`; `collections_to_save` into the configuration"),
    Row("Jobs", BECOMES,
        "DebuggerHookConfig CollectionConfig",
        "`--config FILE`: its parameters and collections, as they are"),
    Row("Jobs", BECOMES, "TensorBoardOutputConfig", "`--tensorboard DIR`"),
    Row("Jobs", BECOMES,
        "ActionList StopTraining Email SMS",
        "`on_issue=` behind the rule: `stop`, `email:ADDRESS`, `sms:+DIGITS`"),
    Row("Jobs", BECOMES,
        "use_spot_instances train_use_spot_instances checkpoint_s3_uri checkpoint_local_path",
        "`--checkpoint-dir DIR --max-restarts N --restart-on preempted`; the script finds DIR in "
        "`$TDBG_CHECKPOINT_DIR`"),
    Row("Jobs", BECOMES,
        "max_run train_max_run max_wait train_max_wait",
        "`--max-runtime SECONDS`, restarts included"),
    Row("Jobs", BECOMES,
        "instance_count train_instance_count distribution distributions",
        "`torchrun` or another launcher behind `--`, on your machines"),
    Row("Jobs", BECOMES,
        "fit",
        "the command itself, `--detach` for `wait=False`; channels are folders, in `SM_CHANNEL_<NAME>`"),
    Row("Jobs", BECOMES,
        "rule_job_summary describe_training_job",
        "`tdbg status RUN --json`: four fields for each rule, named as there"),
    Row("Jobs", BECOMES,
        "latest_job_debugger_artifacts_path latest_job_tensorboard_artifacts_path",
        "the run directory, and the DIR of `--tensorboard`"),
    Row("Jobs", BECOMES, "stop_training_job", "`tdbg stop RUN`"),
    Row("Jobs", BECOMES, "list_training_jobs", "`tdbg jobs --json`"),
    Row("Jobs", BECOMES,
        "put_rule put_targets create_function",
        "`--on-event FILE`, or `tdbg handlers add`; patterns and handlers are EventBridge's and Lambda's"),
    Row("Jobs", BECOMES, "logs_for_job get_log_events", "`tdbg logs JOB`"),
    Row("Jobs", BECOMES,
        "get_execution_role Session default_bucket image_uris get_image_uri",
        "nothing: there is no account, bucket or image"),
    Row("Jobs", BECOMES,
        "s3_input TrainingInput upload_data S3Uploader S3Downloader",
        "a local folder; copy what lies in S3 first"),
    Row("Jobs", NOT_OFFERED,
        "ProfilerRule ProfilerConfig FrameworkProfile DetailedProfilingConfig DataloaderProfilingConfig "
        "PythonProfilingConfig HorovodProfilingConfig SMDataParallelProfilingConfig",
        "system profiling is another tool's business; the debugger's rules do not need it"),
    Row("Jobs", NOT_OFFERED,
        "deploy Model Predictor Processor HyperparameterTuner Pipeline",
        "endpoints, processing and tuning are no part of a debugger"),
    # Hook
    Row("Hook", BETTER,
        "out_dir export_tensorboard tensorboard_dir dry_run reduction_config save_config include_regex "
        "include_collections save_all include_workers"),
    Row("Hook", BETTER, "export_tensorboard tensorboard_dir"),
    Row("Hook", BETTER, "create_from_json_file hook_from_config"),
    Row("Hook", BETTER, "register_module register_hook register_loss"),
    Row("Hook", SAME, "record_tensor_value"),
    Row("Hook", SAME, "Hook BaseHook CallbackHook KerasHook SessionHook"),
    Row("Hook", NOT_OFFERED,
        "EstimatorHook",
        "`tf.estimator` was removed from TensorFlow in 2.16; a Keras model or a session instead"),
    Row("Hook", SAME, "get_hook set_hook del_hook"),
    Row("Hook", SAME, "include_collections"),
    Row("Hook", BETTER, "save_scalar"),
    Row("Hook", BETTER, "save_tensor"),
    Row("Hook", SAME, "set_mode get_collection get_collections add_collection"),
    Row("Hook", SAME,
        "has_default_configuration has_default_hook_configuration should_save_tensor_or_collection count_parameters"),
    Row("Hook", SAME, "_cleanup _get_worker_name"),
    Row("Hook", BETTER, "close"),
    Row("Hook", SAME,
        "forward_pre_hook forward_hook backward_hook _write_inputs _write_outputs _write_raw_tensor_simple"),
    Row("Hook", SAME, "GRADIENT_PREFIX SCALAR_PREFIX INPUT_TENSOR_SUFFIX OUTPUT_TENSOR_SUFFIX"),
    Row("Hook", SAME,
        "step mode mode_steps out_dir tensorboard_dir worker chief_worker save_config reduction_config "
        "include_collections include_workers save_all dry_run collection_manager last_saved_step init_step "
        "training_run prepared_collections include_regex save_all_workers logger"),
    Row("Hook", NOT_OFFERED,
        "autograd_profiler_enabled backward_modules_profile_stats forward_modules_profile_stats "
        "parent_backward_event parent_forward_event first_forward_submodule_name is_smdataparallel_profiling "
        "Hook.step_event Hook.profiler timeline_writer Hook.use_cuda hvd_reader custom_tensors_to_save "
        "data_type_name exported_collections first_process has_registered_module has_registered_loss_module "
        "module_set metrics_writer scalar_cache state_store tb_writers tensor_to_collections "
        "written_tensor_name_for_step",
        "insides of smdebug's hook and profiler"),
    Row("Hook", SAME, "export_collections"),
    Row("Hook", NOT_OFFERED, "record_trace_events", "accepted, keeps nothing: see Profiler"),
    Row("Hook", NOT_OFFERED,
        "fhook bhook log_outstanding_timeline_metrics log_outstanding_forward_stats_and_reset "
        "log_outstanding_backward_stats_and_reset reset_forward_module_profile_stats "
        "reset_backward_module_profile_stats log_trace_event should_save_dataloader_metrics INVALID_TAG_CHARACTERS",
        "parts of the profiler's inside"),
    Row("Hook", BETTER, "backward backward_hook"),
    Row("Hook", BETTER,
        "metadata.json StateStore get_last_saved_state is_checkpoint_updated update_state METADATA_FILENAME "
        "METADATA_FILENAME_S3_UPLOADED LATEST_GLOBAL_STEP_SEEN LATEST_GLOBAL_STEP_SAVED LATEST_MODE_STEP TRAINING_RUN"),
    # XGBoost
    Row("XGBoost", SAME, "hyperparameters train_data validation_data"),
    Row("XGBoost", SAME, "before_training after_iteration after_training"),
    Row("XGBoost", SAME, "xgb_model"),
    Row("XGBoost", NOT_OFFERED,
        "write_hyperparameters write_losses write_metrics write_predictions write_labels write_feature_importances "
        "write_full_shap write_average_shap write_tree_model XGBoostBaseHook INCREASING_METRICS_REGEX",
        "parts of its inside"),
    # MXNet Gluon
    Row("MXNet Gluon", SAME, "register_block register_hook Collection.add_block_tensors get_hook"),
    # Keras
    Row("Keras", SAME, "get_collection save_scalar save_tensor close"),
    Row("Keras", BETTER, "fit"),
    Row("Keras", DIFFERS, "inputs outputs", "hold layers' tensors too, which smdebug has in `layers` only"),
    Row("Keras", BETTER, "wrap_optimizer wrap_tape register_model"),
    # Sessions of TensorFlow 1
    Row("Sessions of TensorFlow 1", SAME,
        "MonitoredSession get_hook set_mode add_to_collection Collection.add Collection.add_for_mode begin before_run "
        "after_run"),
    Row("Sessions of TensorFlow 1", SAME, "step mode_steps"),
    Row("Sessions of TensorFlow 1", BETTER, "include_regex save_all"),
    Row("Sessions of TensorFlow 1", BETTER, "wrap_optimizer"),
    Row("Sessions of TensorFlow 1", SAME, "set_gradients set_optimizer_variables"),
    Row("Sessions of TensorFlow 1", BETTER, "tf.IndexedSlices"),
    Row("Sessions of TensorFlow 1", DIFFERS,
        "tensorflow_summaries",
        "holds what the summaries are of, as tensors; smdebug writes the summaries into TensorBoard's files"),
    Row("Sessions of TensorFlow 1", BETTER, "save_scalar save_tensor"),
    # Configuration
    Row("Configuration", BETTER,
        "LocalPath HookParameters CollectionConfigurations CollectionName CollectionParameters"),
    Row("Configuration", SAME,
        "SMDEBUG_CONFIG_FILE_PATH TENSORBOARD_CONFIG_FILE_PATH TRAINING_JOB_NAME CHECKPOINT_CONFIG_FILE_PATH "
        "USE_SMDEBUG SMDEBUG_TRAINING_END_DELAY_REFRESH SMDEBUG_INCOMPLETE_STEP_WAIT_WINDOW"),
    Row("Configuration", NOT_OFFERED,
        "SAGEMAKER_METRICS_DIRECTORY SMDEBUG_LOG_CONTEXT SMDEBUG_LOG_ALL_TO_STDOUT SMDEBUG_LOG_PATH "
        "SMDEBUG_KERAS_CALLABLE_CACHE_TYPE SMPROFILER_CONFIG_PATH",
        "nothing here reads them; logging is Python's, logger `smdebug`"),
    Row("Configuration", BETTER,
        "SaveConfig SaveConfigMode should_save_step get_save_config set_save_config merge_default_save_config "
        "from_save_config_mode to_json_dict to_json from_json from_dict parse"),
    Row("Configuration", SAME,
        "DEFAULT_SAVE_CONFIG_INTERVAL DEFAULT_SAVE_CONFIG_START_STEP DEFAULT_SAVE_CONFIG_END_STEP "
        "DEFAULT_SAVE_CONFIG_SAVE_STEPS ALLOWED_PARAMS"),
    Row("Configuration", BETTER,
        "ReductionConfig to_json_dict to_json from_json from_dict ALLOWED_REDUCTIONS ALLOWED_NORMS"),
    Row("Configuration", SAME, "REDUCTIONS_PREFIX get_reduction_tensor_name reverse_reduction_tensor_name"),
    Row("Configuration", SAME, "ReductionConfig"),
    Row("Configuration", SAME, "get_numpy_reduction get_basic_numpy_reduction get_reduction_of_data"),
    Row("Configuration", NOT_OFFERED, "REDUCTION_CONFIG_VERSION_NUM", "inside"),
    Row("Configuration", SAME,
        "Collection include include_regex add_tensor_name remove_tensor_name has_tensor_name add_module_tensors "
        "modules save_config reduction_config tensor_names to_json to_json_dict from_json from_dict"),
    Row("Configuration", SAME,
        "CollectionManager add get create_collection get_collections get_num_workers set_num_workers update_meta "
        "export load load_from_string to_json_dict"),
    Row("Configuration", SAME,
        "CollectionKeys SUMMARIES_COLLECTIONS SCALAR_COLLECTIONS SM_METRIC_COLLECTIONS NON_REDUCTION_COLLECTIONS "
        "NON_HISTOGRAM_COLLECTIONS DEFAULT_PYTORCH_COLLECTIONS DEFAULT_MXNET_COLLECTIONS DEFAULT_TF_COLLECTIONS "
        "DEFAULT_XGBOOST_COLLECTIONS DEFAULT_INCLUDE_COLLECTIONS"),
    Row("Configuration", SAME,
        "ModeKeys TRAIN EVAL PREDICT GLOBAL modes ALLOWED_MODES ALLOWED_MODE_NAMES str_to_mode_keys MODE_PLUGIN_NAME "
        "MODE_STEP_PLUGIN_NAME"),
    Row("Configuration", SAME,
        "get_json_config_as_dict get_tensorboard_dir_from_json_config collect_hook_config_params "
        "get_include_collections add_collections_to_manager parse_save_config_modes_dict parse_save_config_dict "
        "get_node_id_from_resource_config"),
    Row("Configuration", SAME,
        "create_hook_from_json_config default_values CONFIG_FILE_PATH_ENV_STR TENSORBOARD_CONFIG_FILE_PATH_ENV_STR "
        "DEFAULT_CONFIG_FILE_PATH DEFAULT_SAGEMAKER_OUTDIR DEFAULT_SAGEMAKER_TENSORBOARD_PATH DEFAULT_WORKER_NAME "
        "DEFAULT_COLLECTIONS_FILE_NAME CHECKPOINT_CONFIG_FILE_PATH_ENV_VAR DEFAULT_CHECKPOINT_CONFIG_FILE "
        "DEFAULT_RESOURCE_CONFIG_FILE CHECKPOINT_DIR_KEY TRAINING_END_DELAY_REFRESH_KEY "
        "INCOMPLETE_STEP_WAIT_WINDOW_KEY CONFIG_OUTDIR_KEY CONFIG_HOOK_PARAMS_KEY CONFIG_COLLECTION_CONFIG_KEY "
        "CONFIG_COLLECTION_NAME_KEY CONFIG_COLLECTION_PARAMS_KEY CONFIG_INCLUDE_REGEX_KEY CONFIG_INCLUDE_WORKERS_KEY "
        "CONFIG_SAVE_ALL_KEY CONFIG_DRYRUN_KEY EXPORT_TENSORBOARD_KEY TENSORBOARD_DIR_KEY"),
    # Trials and tensors
    Row("Trials and tensors", BETTER, "create_trial path name range_steps smdebug.trials.utils"),
    Row("Trials and tensors", SAME, "dirname"),
    Row("Trials and tensors", SAME, "trial.collection add_tensor_name"),
    Row("Trials and tensors", BETTER,
        "Trial LocalTrial S3Trial tensor_names tensor has_tensor steps modes mode mode_step mode_modestep global_step "
        "workers collections collection wait_for_steps has_passed_step inputs labels predictions maybe_refresh name "
        "path loaded_all_steps last_complete_step num_workers dynamic_refresh"),
    Row("Trials and tensors", SAME,
        "trial_dir last_index_token workers_for_global_step collection_manager Trial.logger Trial.parallel "
        "Trial.check Trial.index_mode Trial.cache Tensor.cache Tensor.trial RequiredTensors.base_trial"),
    Row("Trials and tensors", NOT_OFFERED,
        "index_reader index_tensors_dict global_step_to_tensors_map mode_to_tensors_map last_event_token",
        "insides of smdebug's trial"),
    Row("Trials and tensors", NOT_OFFERED,
        "Trial.refresh_data Trial.refresh_tensor",
        "`refresh()`, `maybe_refresh()`"),
    Row("Trials and tensors", BETTER,
        "Tensor steps prev_steps value values shape reduction_value reduction_values workers step"),
    Row("Trials and tensors", NOT_OFFERED,
        "Tensor.add_step Tensor.add_reduction_step ModeSteps Step",
        "how smdebug builds its index"),
    Row("Trials and tensors", SAME, "StepState"),
    Row("Trials and tensors", BETTER, "no_refresh refresh parse_list_from_str parse_bool"),
    Row("Trials and tensors", NOT_OFFERED,
        "ReadIndexFilesCache IndexReader S3IndexReader LocalIndexReader",
        "insides of smdebug's reader"),
    Row("Trials and tensors", SAME,
        "INCOMPLETE_STEP_WAIT_WINDOW_DEFAULT TRAINING_END_DELAY_REFRESH_DEFAULT MISSING_EVENT_FILE_RETRY_LIMIT "
        "MISSING_EVENT_FILE_RETRY_LIMIT_KEY RULE_JOB_STOP_SIGNAL_FILENAME size_and_shape"),
    # Rules
    Row("Rules", BETTER,
        "Rule invoke invoke_at_step set_required_tensors base_trial other_trials req_tensors logger rule_name report"),
    Row("Rules", SAME, "invoke_rule"),
    Row("Rules", SAME, "RequiredTensors RequiredTensorsForTrial add get get_names get_tensor_steps clear fetch"),
    Row("Rules", NOT_OFFERED,
        "Actions ALLOWED_ACTIONS",
        "parsed and named in the log; stopping, mail and messages are the watcher's: `tdbg run --on-issue stop`, "
        "`exec:`, `webhook:`"),
    Row("Rules", NOT_OFFERED, "StopTrainingAction MessageAction", "as above: tdbg calls no service of AWS"),
    # Exceptions
    Row("Exceptions", SAME,
        "SMDebugError SMDebugTypeError SMDebugValueError SMDebugRuntimeError SMDebugNotImplementedError "
        "SMDebugCustomerError InvalidCollectionConfiguration StepNotYetAvailable StepUnavailable "
        "MissingCollectionFiles IndexReaderException TensorUnavailableForStep ShapeUnavailableForStep "
        "TensorUnavailable InvalidWorker NoMoreData NoMoreProfilerData RuleEvaluationConditionMet "
        "InsufficientInformationForRuleInvocation"),
    # Files and helpers
    Row("Files and helpers", SAME,
        "EventFileLocation TensorFileLocation TensorboardFileLocation IndexFileLocationUtils"),
    Row("Files and helpers", SAME,
        "END_OF_JOB_FILENAME training_has_ended has_training_ended check_dir_exists file_exists "
        "is_rule_signalled_gracetime_passed verify_and_get_out_dir get_tensorboard_dir get_temp_path"),
    Row("Files and helpers", SAME,
        "smdebug.core.utils is_s3 flatten split merge_two_dicts match_inc index step_in_range load_json_as_dict "
        "make_numpy_array ensure_dir list_files_in_directory get_path_to_collections is_first_process "
        "parse_worker_name_from_file get_node_id SagemakerSimulator ScriptSimulator"),
    Row("Files and helpers", SAME,
        "smdebug.pytorch.utils smdebug.mxnet.utils smdebug.xgboost.utils smdebug.tensorflow.utils"),
    Row("Files and helpers", SAME, "smdebug.profiler.utils str2bool smdebug.profiler.profiler_constants"),
    Row("Files and helpers", SAME,
        "is_sagemaker_job get_logger DuplicateLogFilter MaxLevelFilter LOG_DUPLICATION_THRESHOLD"),
    Row("Files and helpers", BETTER,
        "FileWriter write_tensor write_shape write_scalar_summary write_histogram_summary flush close name"),
    Row("Files and helpers", BETTER, "FileReader read_tensors read_events"),
    # Not offered
    Row("Not offered", NOT_OFFERED,
        "FileWriter write_summary write_graph write_pytorch_graph index_writer proto_writer EventFileWriter "
        "EventsWriter IndexWriter Index EventWithIndex RecordWriter make_tensor_proto scalar_summary "
        "histogram_summary",
        "protocol buffers in the caller's hands; `FileWriter` takes arrays. A run as a whole: `tdbg export --to "
        "smdebug`, `--format smdebug`"),
    Row("Not offered", NOT_OFFERED,
        "TensorReader RecordReader EventFileReader EventsReader as_dtype get_tensor_data TensorLocation TensorShape",
        "insides of `FileReader` and of the trial"),
    Row("Not offered", NOT_OFFERED,
        "CRC_TABLE crc_update crc_finalize crc32c masked_crc32c u32 CHECKSUM_MAGIC_BYTES absolute_import",
        "insides of those"),
    Row("Not offered", NOT_OFFERED,
        "TSAccessBase TSAccessFile TSAccessS3 S3Handler ReadObjectRequest ListRequest DeleteRequest WRITE_MODES "
        "get_temp_path SMDEBUG_TEMP_PATH_SUFFIX file_exists delete_s3_prefixes list_s3_objects is_s3",
        "reading and writing objects is boto3's, or a training's launcher's"),
    Row("Not offered", NOT_OFFERED,
        "TraceFileLocation TimelineRecord TimelineFileWriter CONVERT_TO_MICROSECS DEFAULT_PREFIX "
        "MERGEDTIMELINE_SUFFIX PYTHONTIMELINE_SUFFIX TRACE_DIRECTORY_FORMAT profiler_config_parser "
        "setup_profiler_report PROFILER_REPORT_VERSION PROFILER_TELEMETRY_URL smdebug.profiler",
        "Profiler: system profiling is another tool's business. No telemetry either"),
    Row("Not offered", NOT_OFFERED,
        "ErrorHandlingAgent error_handling_agent",
        "nothing of ours is raised into a training, so there is nothing to switch off"),
    Row("Not offered", NOT_OFFERED,
        "ConfigValidator get_config_validator smdataparallel TF_VERSION SUPPORTED_TF_VERSION_THRESHOLD "
        "fetch_tensor_value",
        "no version is refused"),
    Row("Not offered", NOT_OFFERED,
        "SageMakerFileMetricsWriter ScalarCache",
        "`save_scalar(sm_metric=True)` puts the number into the collection `sm_metrics`"),
    Row("Not offered", NOT_OFFERED, "get_step_from_idx_filename", "takes the worker's number for the step"),
    Row("Not offered", NOT_OFFERED, "setup_profiler_report", "sends no telemetry"),
)

# What `import` finds in the distribution tdbg-smdebug.
MODULES = frozenset((
    "smdebug smdebug.analysis smdebug.analysis.utils smdebug.core smdebug.core.access_layer "
    "smdebug.core.access_layer.base smdebug.core.access_layer.file smdebug.core.access_layer.s3 "
    "smdebug.core.access_layer.s3handler smdebug.core.access_layer.utils smdebug.core.collection "
    "smdebug.core.collection_manager smdebug.core.config_constants smdebug.core.config_validator "
    "smdebug.core.error_handling_agent smdebug.core.hook smdebug.core.hook_utils smdebug.core.index_reader "
    "smdebug.core.json_config smdebug.core.locations smdebug.core.logger smdebug.core.modes smdebug.core.reader "
    "smdebug.core.reduction_config smdebug.core.reductions smdebug.core.s3_utils smdebug.core.sagemaker_utils "
    "smdebug.core.save_config smdebug.core.singleton_utils smdebug.core.state_store smdebug.core.tensor "
    "smdebug.core.tfevent smdebug.core.tfevent.event_file_reader smdebug.core.tfevent.event_file_writer "
    "smdebug.core.tfevent.events_writer smdebug.core.tfevent.index_file_writer smdebug.core.tfevent.summary "
    "smdebug.core.tfevent.timeline_file_writer smdebug.core.tfevent.util smdebug.core.tfrecord "
    "smdebug.core.tfrecord.record_reader smdebug.core.tfrecord.record_writer smdebug.core.tfrecord.tensor_reader "
    "smdebug.core.utils smdebug.core.writer smdebug.exceptions smdebug.mxnet smdebug.mxnet.collection "
    "smdebug.mxnet.graph smdebug.mxnet.hook smdebug.mxnet.singleton_utils smdebug.mxnet.utils smdebug.profiler "
    "smdebug.profiler.profiler_constants smdebug.profiler.utils smdebug.pytorch smdebug.pytorch.collection "
    "smdebug.pytorch.hook smdebug.pytorch.singleton_utils smdebug.pytorch.utils smdebug.rules "
    "smdebug.rules.action smdebug.rules.action.action smdebug.rules.action.message_action "
    "smdebug.rules.action.stop_training_action smdebug.rules.req_tensors smdebug.rules.rule "
    "smdebug.rules.rule_invoker smdebug.tensorflow smdebug.tensorflow.base_hook "
    "smdebug.tensorflow.callable_cache smdebug.tensorflow.collection smdebug.tensorflow.constants "
    "smdebug.tensorflow.keras smdebug.tensorflow.reductions smdebug.tensorflow.session "
    "smdebug.tensorflow.singleton_utils smdebug.tensorflow.tensor_ref smdebug.tensorflow.utils "
    "smdebug.tensorflow.version_check smdebug.trials smdebug.trials.local_trial smdebug.trials.profiler_trial "
    "smdebug.trials.s3_trial smdebug.trials.trial smdebug.trials.utils smdebug.xgboost "
    "smdebug.xgboost.collection smdebug.xgboost.hook smdebug.xgboost.singleton_utils smdebug.xgboost.utils "
).split())

# Sections that say what a framework's hook has beside the common one.
_HOOKS = {"xgboost": "XGBoost", "mxnet": "MXNet Gluon", "tensorflow": "Keras"}


def names(row: Row) -> list[str]:
    return row.names.split()


def _index() -> dict[tuple[str, str], Verdict]:
    found: dict[tuple[str, str], Verdict] = {}
    for row in ROWS:
        for name in names(row):
            found.setdefault((row.section, name), Verdict(row.verdict, row.why))
    return found


_TABLE = _index()
_ORDER = tuple(dict.fromkeys(row.section for row in ROWS if row.section not in (JOBS, REST))) + (REST,)


def of_job(name: str) -> Verdict | None:
    """Of a name of the SageMaker SDK's or of boto3's client; None: not a debugger's business."""
    return _TABLE.get((JOBS, name))


def of_hook(name: str, framework: str = "") -> Verdict | None:
    """Of a hook's method or attribute; None: none of smdebug's."""
    own = _TABLE.get((_HOOKS[framework], name)) if framework in _HOOKS else None
    return own or _TABLE.get((HOOK, name))


def of_trial(name: str) -> Verdict | None:
    """Of a method or an attribute of a trial or a tensor; None: none of smdebug's."""
    return _TABLE.get((TRIALS, f"Tensor.{name}")) or _TABLE.get((TRIALS, f"Trial.{name}")) or _TABLE.get((TRIALS, name))


def of_name(name: str) -> Verdict | None:
    """Of a name that is imported from smdebug. Where two modules have it, the one that works."""
    for section in _ORDER:
        found = _TABLE.get((section, name))
        if found:
            return found
    return None


def is_module(dotted: str) -> bool:
    return dotted in MODULES


def of_module(dotted: str) -> Verdict | None:
    """Of a module that has a row of its own, as smdebug.profiler has."""
    return of_name(dotted) if dotted.startswith("smdebug.") else None


def all_names() -> list[str]:
    """What an import of everything (`*`) may bring."""
    return sorted({name.split(".")[0] for row in ROWS for name in names(row)})
