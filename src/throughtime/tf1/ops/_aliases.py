"""Second names: `tf.math.abs` is `tf.abs`, `tf.linalg.inv` is `tf.matrix_inverse`, `tf.mul` is `tf.multiply`.

A function is registered under one name and is public under all of them.
"""

from __future__ import annotations

from throughtime.tf1._namespace import PUBLIC, export

# Namespaces that repeat functions of `tf` under the same name.
_MIRRORED = {
    "contrib.framework": """
        TensorSpec argsort assert_same_float_dtype assert_scalar convert_to_tensor_or_sparse_tensor is_tensor
        sort
    """,
    "debugging": """
        Assert assert_equal assert_greater assert_greater_equal assert_integer assert_less assert_less_equal
        assert_near assert_negative assert_non_negative assert_non_positive assert_none_equal assert_positive
        assert_proper_iterable assert_rank assert_rank_at_least assert_rank_in assert_same_float_dtype
        assert_scalar assert_type check_numerics is_finite is_inf is_nan is_non_decreasing is_numeric_tensor
        is_strictly_increasing
    """,
    "dtypes": """
        DType as_dtype as_string cast complex saturate_cast
    """,
    "image": """
        extract_image_patches random_crop
    """,
    "initializers": """
        tables_initializer
    """,
    "io": """
        FixedLenFeature FixedLenSequenceFeature PaddingFIFOQueue PriorityQueue QueueBase RandomShuffleQueue
        SparseFeature VarLenFeature decode_base64 decode_compressed decode_csv decode_json_example decode_raw
        deserialize_many_sparse encode_base64 matching_files parse_example parse_single_example
        parse_single_sequence_example parse_tensor read_file serialize_many_sparse serialize_sparse
        serialize_tensor write_file
    """,
    "linalg": """
        cholesky cholesky_solve cross einsum eye global_norm matmul matrix_transpose norm qr svd tensordot trace
    """,
    "manip": """
        batch_to_space_nd gather_nd reshape reverse roll scatter_nd space_to_batch_nd tile
    """,
    "math": """
        abs accumulate_n acos acosh add add_n angle argmax argmin asin asinh atan atan2 atanh betainc bincount
        ceil confusion_matrix conj cos cosh count_nonzero cumprod cumsum digamma divide equal erf erfc exp expm1
        floor floordiv floormod greater greater_equal igamma igammac imag invert_permutation is_finite is_inf
        is_nan is_non_decreasing is_strictly_increasing lbeta less less_equal lgamma log log1p log_sigmoid
        logical_and logical_not logical_or logical_xor maximum minimum multiply negative not_equal polygamma pow
        real reciprocal reduce_all reduce_any reduce_logsumexp reduce_max reduce_mean reduce_min reduce_prod
        reduce_sum rint round rsqrt scalar_mul segment_max segment_mean segment_min segment_prod segment_sum
        sigmoid sign sin sinh sqrt square squared_difference subtract tan tanh truediv unsorted_segment_max
        unsorted_segment_mean unsorted_segment_min unsorted_segment_prod unsorted_segment_sqrt_n
        unsorted_segment_sum zeta
    """,
    "nn": """
        depth_to_space sigmoid space_to_batch space_to_depth tanh
    """,
    "quantization": """
        dequantize fake_quant_with_min_max_args fake_quant_with_min_max_args_gradient
        fake_quant_with_min_max_vars fake_quant_with_min_max_vars_gradient
        fake_quant_with_min_max_vars_per_channel fake_quant_with_min_max_vars_per_channel_gradient quantize
        quantized_concat
    """,
    "queue": """
        FIFOQueue PaddingFIFOQueue PriorityQueue QueueBase RandomShuffleQueue
    """,
    "random": """
        get_seed multinomial set_random_seed truncated_normal
    """,
    "signal": """
        fft fft2d fft3d ifft ifft2d ifft3d
    """,
    "sparse": """
        SparseConditionalAccumulator SparseTensor
    """,
    "spectral": """
        fft fft2d fft3d ifft ifft2d ifft3d
    """,
    "strings": """
        as_string reduce_join regex_replace
    """,
}

# Other names, by namespace or from TensorFlow 0.x.
_RENAMED = {
    "NoGradient": "NotDifferentiable",
    "batch_cholesky": "cholesky",
    "batch_cholesky_solve": "cholesky_solve",
    "batch_fft": "fft",
    "batch_fft2d": "fft2d",
    "batch_fft3d": "fft3d",
    "batch_ifft": "ifft",
    "batch_ifft2d": "ifft2d",
    "batch_ifft3d": "ifft3d",
    "batch_matmul": "matmul",
    "batch_matrix_band_part": "matrix_band_part",
    "batch_matrix_determinant": "matrix_determinant",
    "batch_matrix_diag": "matrix_diag",
    "batch_matrix_diag_part": "matrix_diag_part",
    "batch_matrix_inverse": "matrix_inverse",
    "batch_matrix_set_diag": "matrix_set_diag",
    "batch_matrix_solve": "matrix_solve",
    "batch_matrix_solve_ls": "matrix_solve_ls",
    "batch_matrix_transpose": "matrix_transpose",
    "batch_matrix_triangular_solve": "matrix_triangular_solve",
    "batch_norm_with_global_normalization": "nn.batch_norm_with_global_normalization",
    "batch_self_adjoint_eig": "self_adjoint_eig",
    "batch_self_adjoint_eigvals": "self_adjoint_eigvals",
    "batch_svd": "svd",
    "complex_abs": "abs",
    "concat_v2": "concat",
    "contrib.math.sort": "sort",
    "debugging.assert_all_finite": "verify_tensor_all_finite",
    "floor_mod": "floormod",
    "image.per_image_whitening": "image.per_image_standardization",
    "image.resize": "image.resize_images",
    "image.resize_with_crop_or_pad": "image.resize_image_with_crop_or_pad",
    "image.transpose_image": "image.transpose",
    "initializers.constant": "constant_initializer",
    "initializers.global_variables": "global_variables_initializer",
    "initializers.glorot_normal": "glorot_normal_initializer",
    "initializers.glorot_uniform": "glorot_uniform_initializer",
    "initializers.local_variables": "local_variables_initializer",
    "initializers.ones": "ones_initializer",
    "initializers.orthogonal": "orthogonal_initializer",
    "initializers.random_normal": "random_normal_initializer",
    "initializers.random_uniform": "random_uniform_initializer",
    "initializers.truncated_normal": "truncated_normal_initializer",
    "initializers.uniform_unit_scaling": "uniform_unit_scaling_initializer",
    "initializers.variables": "variables_initializer",
    "initializers.variance_scaling": "variance_scaling_initializer",
    "initializers.zeros": "zeros_initializer",
    "inv": "reciprocal",
    "io.decode_and_crop_jpeg": "image.decode_and_crop_jpeg",
    "io.decode_bmp": "image.decode_bmp",
    "io.decode_gif": "image.decode_gif",
    "io.decode_image": "image.decode_image",
    "io.decode_jpeg": "image.decode_jpeg",
    "io.decode_png": "image.decode_png",
    "io.encode_jpeg": "image.encode_jpeg",
    "io.extract_jpeg_shape": "image.extract_jpeg_shape",
    "io.is_jpeg": "image.is_jpeg",
    "keras.initializers.Constant": "constant_initializer",
    "keras.initializers.Identity": "initializers.identity",
    "keras.initializers.Ones": "ones_initializer",
    "keras.initializers.Orthogonal": "orthogonal_initializer",
    "keras.initializers.VarianceScaling": "variance_scaling_initializer",
    "keras.initializers.Zeros": "zeros_initializer",
    "keras.initializers.constant": "constant_initializer",
    "keras.initializers.glorot_normal": "glorot_normal_initializer",
    "keras.initializers.glorot_uniform": "glorot_uniform_initializer",
    "keras.initializers.he_normal": "initializers.he_normal",
    "keras.initializers.he_uniform": "initializers.he_uniform",
    "keras.initializers.identity": "initializers.identity",
    "keras.initializers.lecun_normal": "initializers.lecun_normal",
    "keras.initializers.lecun_uniform": "initializers.lecun_uniform",
    "keras.initializers.normal": "keras.initializers.RandomNormal",
    "keras.initializers.ones": "ones_initializer",
    "keras.initializers.orthogonal": "orthogonal_initializer",
    "keras.initializers.random_normal": "keras.initializers.RandomNormal",
    "keras.initializers.random_uniform": "keras.initializers.RandomUniform",
    "keras.initializers.truncated_normal": "keras.initializers.TruncatedNormal",
    "keras.initializers.uniform": "keras.initializers.RandomUniform",
    "keras.initializers.zeros": "zeros_initializer",
    "lin_space": "linspace",
    "linalg.band_part": "matrix_band_part",
    "linalg.det": "matrix_determinant",
    "linalg.diag": "matrix_diag",
    "linalg.diag_part": "matrix_diag_part",
    "linalg.eigh": "self_adjoint_eig",
    "linalg.eigvalsh": "self_adjoint_eigvals",
    "linalg.inv": "matrix_inverse",
    "linalg.l2_normalize": "nn.l2_normalize",
    "linalg.lstsq": "matrix_solve_ls",
    "linalg.set_diag": "matrix_set_diag",
    "linalg.solve": "matrix_solve",
    "linalg.sqrtm": "matrix_square_root",
    "linalg.tensor_diag": "diag",
    "linalg.tensor_diag_part": "diag_part",
    "linalg.transpose": "matrix_transpose",
    "linalg.triangular_solve": "matrix_triangular_solve",
    "listdiff": "setdiff1d",
    "math.divide_no_nan": "div_no_nan",
    "math.in_top_k": "nn.in_top_k",
    "math.l2_normalize": "nn.l2_normalize",
    "math.log_softmax": "nn.log_softmax",
    "math.mod": "floormod",
    "math.softmax": "nn.softmax",
    "math.softplus": "nn.softplus",
    "math.softsign": "nn.softsign",
    "math.top_k": "nn.top_k",
    "math.zero_fraction": "nn.zero_fraction",
    "mod": "floormod",
    "mul": "multiply",
    "neg": "negative",
    "nn.avg_pool2d": "nn.avg_pool",
    "nn.conv3d_backprop_filter_v2": "nn.conv3d_backprop_filter",
    "nn.deconv2d": "nn.conv2d_transpose",
    "nn.depthwise_conv2d_native_backprop_filter": "nn.depthwise_conv2d_backprop_filter",
    "nn.depthwise_conv2d_native_backprop_input": "nn.depthwise_conv2d_backprop_input",
    "nn.lrn": "nn.local_response_normalization",
    "no_gradient": "NotDifferentiable",
    "pack": "stack",
    "random.all_candidate_sampler": "nn.all_candidate_sampler",
    "random.fixed_unigram_candidate_sampler": "nn.fixed_unigram_candidate_sampler",
    "random.gamma": "random_gamma",
    "random.learned_unigram_candidate_sampler": "nn.learned_unigram_candidate_sampler",
    "random.log_uniform_candidate_sampler": "nn.log_uniform_candidate_sampler",
    "random.normal": "random_normal",
    "random.poisson": "random_poisson",
    "random.shuffle": "random_shuffle",
    "random.uniform": "random_uniform",
    "random.uniform_candidate_sampler": "nn.uniform_candidate_sampler",
    "reverse_v2": "reverse",
    "sets.set_difference": "sets.difference",
    "sets.set_intersection": "sets.intersection",
    "sets.size": "sets.set_size",
    "sets.union": "sets.set_union",
    "sparse.add": "sparse_add",
    "sparse.concat": "sparse_concat",
    "sparse.fill_empty_rows": "sparse_fill_empty_rows",
    "sparse.mask": "sparse_mask",
    "sparse.matmul": "sparse_tensor_dense_matmul",
    "sparse.maximum": "sparse_maximum",
    "sparse.merge": "sparse_merge",
    "sparse.minimum": "sparse_minimum",
    "sparse.placeholder": "sparse_placeholder",
    "sparse.reduce_max": "sparse_reduce_max",
    "sparse.reduce_max_sparse": "sparse_reduce_max_sparse",
    "sparse.reduce_sum": "sparse_reduce_sum",
    "sparse.reduce_sum_sparse": "sparse_reduce_sum_sparse",
    "sparse.reorder": "sparse_reorder",
    "sparse.reset_shape": "sparse_reset_shape",
    "sparse.reshape": "sparse_reshape",
    "sparse.retain": "sparse_retain",
    "sparse.segment_mean": "sparse_segment_mean",
    "sparse.segment_sqrt_n": "sparse_segment_sqrt_n",
    "sparse.segment_sum": "sparse_segment_sum",
    "sparse.slice": "sparse_slice",
    "sparse.softmax": "sparse_softmax",
    "sparse.sparse_dense_matmul": "sparse_tensor_dense_matmul",
    "sparse.split": "sparse_split",
    "sparse.to_dense": "sparse_tensor_to_dense",
    "sparse.to_indicator": "sparse_to_indicator",
    "sparse.transpose": "sparse_transpose",
    "spectral.dct": "signal.dct",
    "spectral.idct": "signal.idct",
    "spectral.irfft": "signal.irfft",
    "spectral.irfft2d": "signal.irfft2d",
    "spectral.irfft3d": "signal.irfft3d",
    "spectral.rfft": "signal.rfft",
    "spectral.rfft2d": "signal.rfft2d",
    "spectral.rfft3d": "signal.rfft3d",
    "split_v": "split",
    "strings.join": "string_join",
    "strings.strip": "string_strip",
    "strings.to_hash_bucket": "string_to_hash_bucket",
    "strings.to_hash_bucket_fast": "string_to_hash_bucket_fast",
    "strings.to_hash_bucket_strong": "string_to_hash_bucket_strong",
    "strings.to_number": "string_to_number",
    "sub": "subtract",
    "tensor_scatter_add": "tensor_scatter_nd_add",
    "tensor_scatter_sub": "tensor_scatter_nd_sub",
    "tensor_scatter_update": "tensor_scatter_nd_update",
    "truncate_div": "truncatediv",
    "truncate_mod": "truncatemod",
    "unpack": "unstack",
}


def _names() -> dict[str, list[str]]:
    """Every second name, by the first."""
    found: dict[str, list[str]] = {}
    for space, words in _MIRRORED.items():
        for word in words.split():
            found.setdefault(word, []).append(f"{space}.{word}")
    for other, name in _RENAMED.items():
        found.setdefault(name, []).append(other)
    return found


SECOND_NAMES = _names()


def export_second_names() -> None:
    """Make every public object public under its other names, where nothing else has them."""
    for name, others in SECOND_NAMES.items():
        if name in PUBLIC:
            for other in others:
                if other not in PUBLIC:
                    export(other, PUBLIC[name])
