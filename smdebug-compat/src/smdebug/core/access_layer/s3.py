from ..._not_offered import S3, NotOffered

TSAccessS3 = NotOffered(f"{__name__}.TSAccessS3", S3)
