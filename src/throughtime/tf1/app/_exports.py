"""Public names of flags, `app.run`, `logging`, `gfile` and settings."""

from __future__ import annotations

from throughtime.tf1 import protos
from throughtime.tf1._namespace import export
from throughtime.tf1.app import _define, _flag_types, _logging
from throughtime.tf1.app._flags import FLAGS, FlagValues
from throughtime.tf1.app._run import run
from throughtime.tf1.files import _gfile

_FLAGS = {
    "FLAGS": FLAGS,
    "DEFINE_string": _define.define_string,
    "DEFINE_integer": _define.define_integer,
    "DEFINE_float": _define.define_float,
    "DEFINE_boolean": _define.define_boolean,
    "DEFINE_bool": _define.define_boolean,
    "DEFINE_enum": _define.define_enum,
    "DEFINE_list": _define.define_list,
    "DEFINE_spaceseplist": _define.define_spaceseplist,
    "DEFINE_multi_string": _define.define_multi_string,
    "DEFINE_multistring": _define.define_multi_string,
    "DEFINE_multi_integer": _define.define_multi_integer,
    "DEFINE_multi_int": _define.define_multi_integer,
    "DEFINE_multi_float": _define.define_multi_float,
    "mark_flag_as_required": _define.mark_flag_as_required,
    "mark_flags_as_required": _define.mark_flags_as_required,
    "FlagValues": FlagValues,
    "_FlagValues": FlagValues,
    "Flag": _flag_types.Flag,
    "Error": _flag_types.FlagsError,
    "UnrecognizedFlagError": _flag_types.UnrecognizedFlagError,
    "IllegalFlagValueError": _flag_types.IllegalFlagValueError,
    "DuplicateFlagError": _flag_types.DuplicateFlagError,
    "UnparsedFlagAccessError": _flag_types.UnparsedFlagAccessError,
}
for _place in ("flags", "app.flags", "python.platform.flags"):
    for _name, _value in _FLAGS.items():
        export(f"{_place}.{_name}", _value)
for _place in ("app", "python.platform.app"):
    export(f"{_place}.run", run)

_LOGGING = (
    "DEBUG INFO WARN ERROR FATAL log debug info warn error fatal vlog flush set_verbosity get_verbosity get_logger "
    "log_if log_first_n log_every_n"
)
for _place in ("logging", "python.platform.tf_logging"):
    for _name in _LOGGING.split():
        export(f"{_place}.{_name}", getattr(_logging, _name))
    export(f"{_place}.warning", _logging.warn)
export("get_logger", _logging.get_logger)

_FILES = {
    "GFile": _gfile.GFile,
    "FastGFile": _gfile.FastGFile,
    "Open": _gfile.GFile,
    "Exists": _gfile.exists,
    "Glob": _gfile.glob_files,
    "IsDirectory": _gfile.is_directory,
    "ListDirectory": _gfile.list_directory,
    "MakeDirs": _gfile.make_folders,
    "MkDir": _gfile.make_folder,
    "Walk": _gfile.list_tree,
    "Copy": _gfile.copy,
    "Rename": _gfile.rename,
    "Remove": _gfile.remove,
    "DeleteRecursively": _gfile.remove_tree,
    "Stat": _gfile.stat,
}
_NEW_FILES = {
    "GFile": _gfile.GFile,
    "exists": _gfile.exists,
    "glob": _gfile.glob_files,
    "isdir": _gfile.is_directory,
    "listdir": _gfile.list_directory,
    "makedirs": _gfile.make_folders,
    "mkdir": _gfile.make_folder,
    "walk": _gfile.list_tree,
    "copy": _gfile.copy,
    "rename": _gfile.rename,
    "remove": _gfile.remove,
    "rmtree": _gfile.remove_tree,
    "stat": _gfile.stat,
}
for _place, _names in (("gfile", _FILES), ("python.platform.gfile", _FILES), ("io.gfile", _NEW_FILES)):
    for _name, _value in _names.items():
        export(f"{_place}.{_name}", _value)

for _name in ("ConfigProto", "GPUOptions", "GraphOptions", "OptimizerOptions", "RunOptions", "RunMetadata"):
    export(_name, getattr(protos, _name))
for _name in (
    "Example Features Feature FeatureList FeatureLists BytesList FloatList Int64List SequenceExample SaverDef "
    "ClusterDef JobDef"
).split():
    export(f"train.{_name}", getattr(protos, _name))
export("python.training.checkpoint_state_pb2.CheckpointState", protos.CheckpointState)
export("core.protobuf.rewriter_config_pb2.RewriterConfig", protos.RewriterConfig)
export("core.framework.summary_pb2.Summary", protos.Summary)
for _name in ("ConfigProto", "GPUOptions", "GraphOptions", "OptimizerOptions", "RunOptions", "RunMetadata"):
    export(f"core.protobuf.config_pb2.{_name}", getattr(protos, _name))
