from ..._not_offered import NotOffered

SMDEBUG_TEMP_PATH_SUFFIX = ".tmp"
WRITE_MODES = ["w", "w+", "wb", "wb+", "a", "a+", "ab", "ab+"]
TSAccessFile = NotOffered(f"{__name__}.TSAccessFile", "write to get_temp_path(path), then os.replace it; FileWriter and "
                          "CollectionManager.export write smdebug's files")


def get_temp_path(file_path) -> str:
    """Where a file is written until it is whole."""
    return file_path + SMDEBUG_TEMP_PATH_SUFFIX
