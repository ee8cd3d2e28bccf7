SMDEBUG_PREFIX = "smdebug_"
SMDEBUG_GRADIENTS_KEY = "smdebug_gradients"
SMDEBUG_LAYER_OUTPUTS_KEY = "smdebug_layer_outputs"
TF_DEFAULT_SAVED_COLLECTIONS = ["losses", "metrics", "sm_metrics"]
