from .._not_offered import S3, not_offered

__getattr__ = not_offered(__name__, S3, "list_s3_objects")
