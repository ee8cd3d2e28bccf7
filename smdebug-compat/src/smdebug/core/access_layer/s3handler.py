from ..._not_offered import S3, not_offered
from ..utils import is_s3

__getattr__ = not_offered(__name__, S3, "S3Handler", "ReadObjectRequest", "ListRequest", "DeleteRequest")
