from .._not_offered import S3, NotOffered, not_offered

S3IndexReader = NotOffered(f"{__name__}.S3IndexReader", S3)

__getattr__ = not_offered(__name__, "create_trial reads the index files itself",
                          "IndexReader", "LocalIndexReader", "ReadIndexFilesCache")
