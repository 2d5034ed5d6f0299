"""A session's settings: `ConfigProto` and its parts, with TensorFlow's fields.

The settings are accepted as they are written. Those that only tune TensorFlow's own runtime change nothing here.
"""

from __future__ import annotations

from typing import ClassVar

from throughtime.tf1.protos._message import Field, Message

Fields = dict[str, Field]


class GPUOptions(Message):
    """Settings of GPUs; torch allocates memory as it is needed."""

    class Experimental(Message):
        """Settings that may change."""

        FIELDS: ClassVar[Fields] = {
            "use_unified_memory": Field(2, "bool"),
            "num_dev_to_dev_copy_streams": Field(3, "int32"),
            "collective_ring_order": Field(4, "string"),
            "timestamped_allocator": Field(5, "bool"),
        }

    FIELDS: ClassVar[Fields] = {
        "per_process_gpu_memory_fraction": Field(1, "double"),
        "allocator_type": Field(2, "string"),
        "deferred_deletion_bytes": Field(3, "int64"),
        "allow_growth": Field(4, "bool"),
        "visible_device_list": Field(5, "string"),
        "polling_active_delay_usecs": Field(6, "int32"),
        "polling_inactive_delay_msecs": Field(7, "int32"),
        "force_gpu_compatible": Field(8, "bool"),
        "experimental": Field(9, Experimental),
    }


class OptimizerOptions(Message):
    """How the graph is optimised."""

    L1, L0 = 0, -1
    DEFAULT, OFF, ON_1, ON_2 = 0, -1, 1, 2
    FIELDS: ClassVar[Fields] = {
        "do_common_subexpression_elimination": Field(1, "bool"),
        "do_constant_folding": Field(2, "bool"),
        "opt_level": Field(3, "enum"),
        "do_function_inlining": Field(4, "bool"),
        "global_jit_level": Field(5, "enum"),
        "max_folded_constant_in_bytes": Field(6, "int64"),
    }


class RewriterConfig(Message):
    """Which rewrites of the graph are made."""

    DEFAULT, ON, OFF, AGGRESSIVE = range(4)
    DEFAULT_NUM_ITERS, ONE, TWO = range(3)
    DEFAULT_MEM_OPT, NO_MEM_OPT, MANUAL, HEURISTICS, SWAPPING_HEURISTICS, RECOMPUTATION_HEURISTICS = range(6)
    FIELDS: ClassVar[Fields] = {
        "layout_optimizer": Field(1, "enum"),
        "disable_model_pruning": Field(2, "bool"),
        "constant_folding": Field(3, "enum"),
        "memory_optimization": Field(4, "enum"),
        "memory_optimizer_target_node_name_scope": Field(6, "string"),
        "arithmetic_optimization": Field(7, "enum"),
        "dependency_optimization": Field(8, "enum"),
        "loop_optimization": Field(9, "enum"),
        "function_optimization": Field(10, "enum"),
        "debug_stripper": Field(11, "enum"),
        "meta_optimizer_iterations": Field(12, "enum"),
        "shape_optimization": Field(13, "enum"),
        "remapping": Field(14, "enum"),
        "scoped_allocator_optimization": Field(15, "enum"),
        "min_graph_nodes": Field(17, "int32"),
        "pin_to_host_optimization": Field(18, "enum"),
        "disable_meta_optimizer": Field(19, "bool"),
        "meta_optimizer_timeout_ms": Field(20, "int64"),
        "fail_on_optimizer_errors": Field(21, "bool"),
        "implementation_selector": Field(22, "enum"),
        "auto_mixed_precision": Field(23, "enum"),
        "optimizers": Field(100, "string", True),
    }


class GraphOptions(Message):
    """Settings of the graph."""

    FIELDS: ClassVar[Fields] = {
        "enable_recv_scheduling": Field(2, "bool"),
        "optimizer_options": Field(3, OptimizerOptions),
        "build_cost_model": Field(4, "int64"),
        "infer_shapes": Field(5, "bool"),
        "place_pruned_graph": Field(6, "bool"),
        "enable_bfloat16_sendrecv": Field(7, "bool"),
        "timeline_step": Field(8, "int32"),
        "build_cost_model_after": Field(9, "int64"),
        "rewrite_options": Field(10, RewriterConfig),
    }


class ThreadPoolOptionProto(Message):
    """A pool of threads."""

    FIELDS: ClassVar[Fields] = {"num_threads": Field(1, "int32"), "global_name": Field(2, "string")}


class RPCOptions(Message):
    """Settings of remote calls."""

    FIELDS: ClassVar[Fields] = {
        "use_rpc_for_inprocess_master": Field(1, "bool"),
        "compression_algorithm": Field(2, "string"),
        "compression_level": Field(3, "int32"),
    }


class JobDef(Message):
    """The tasks of a job of a cluster."""

    FIELDS: ClassVar[Fields] = {"name": Field(1, "string"), "tasks": Field(2, "string", keys="int32")}


class ClusterDef(Message):
    """The jobs of a cluster."""

    FIELDS: ClassVar[Fields] = {"job": Field(1, JobDef, True)}


class ConfigProto(Message):
    """A session's settings.

    >>> import throughtime.tf1.protos as protos
    >>> config = protos.ConfigProto(allow_soft_placement=True)
    >>> config.gpu_options.allow_growth = True
    >>> print(config, end="")
    gpu_options {
      allow_growth: true
    }
    allow_soft_placement: true
    """

    class Experimental(Message):
        """Settings that may change."""

        FIELDS: ClassVar[Fields] = {
            "collective_group_leader": Field(1, "string"),
            "executor_type": Field(3, "string"),
            "recv_buf_max_chunk": Field(4, "int32"),
            "use_numa_affinity": Field(5, "bool"),
            "share_session_state_in_clusterspec_propagation": Field(8, "bool"),
            "disable_thread_spinning": Field(9, "bool"),
            "optimize_for_static_graph": Field(12, "bool"),
        }

    FIELDS: ClassVar[Fields] = {
        "device_count": Field(1, "int32", keys="string"),
        "intra_op_parallelism_threads": Field(2, "int32"),
        "placement_period": Field(3, "int32"),
        "device_filters": Field(4, "string", True),
        "inter_op_parallelism_threads": Field(5, "int32"),
        "gpu_options": Field(6, GPUOptions),
        "allow_soft_placement": Field(7, "bool"),
        "log_device_placement": Field(8, "bool"),
        "use_per_session_threads": Field(9, "bool"),
        "graph_options": Field(10, GraphOptions),
        "operation_timeout_in_ms": Field(11, "int64"),
        "session_inter_op_thread_pool": Field(12, ThreadPoolOptionProto, True),
        "rpc_options": Field(13, RPCOptions),
        "cluster_def": Field(14, ClusterDef),
        "isolate_session_state": Field(15, "bool"),
        "experimental": Field(16, Experimental),
    }


class RunOptions(Message):
    """Settings of one run."""

    NO_TRACE, SOFTWARE_TRACE, HARDWARE_TRACE, FULL_TRACE = range(4)
    FIELDS: ClassVar[Fields] = {
        "trace_level": Field(1, "enum"),
        "timeout_in_ms": Field(2, "int64"),
        "inter_op_thread_pool": Field(3, "int32"),
        "output_partition_graphs": Field(5, "bool"),
        "report_tensor_allocations_upon_oom": Field(7, "bool"),
    }


class StepStats(Message):
    """Times of operations; none are recorded."""

    FIELDS: ClassVar[Fields] = {"dev_stats": Field(1, "bytes", True)}


class RunMetadata(Message):
    """What was recorded of a run; nothing is."""

    FIELDS: ClassVar[Fields] = {
        "step_stats": Field(1, StepStats),
        "cost_graph": Field(2, "bytes"),
        "partition_graphs": Field(3, "bytes", True),
    }
