"""Public functions and classes of TensorFlow 1.15, to tell what is missing from what never was.

Written by `tools/tf1_surface.py`.
"""

from __future__ import annotations

_BY_NAMESPACE = {
    "": """
        AggregationMethod Assert AttrValue ConditionalAccumulator ConditionalAccumulatorBase ConfigProto
        CriticalSection DType DeviceSpec Dimension Event FIFOQueue FixedLenFeature FixedLenSequenceFeature
        FixedLengthRecordReader GPUOptions GradientTape Graph GraphDef GraphKeys GraphOptions HistogramProto
        IdentityReader IndexedSlices IndexedSlicesSpec InteractiveSession LMDBReader LogMessage MetaGraphDef
        Module NameAttrList NoGradient NodeDef NotDifferentiable OpError Operation OptimizerOptions
        OptionalSpec PaddingFIFOQueue Print PriorityQueue QueueBase RaggedTensor RaggedTensorSpec
        RandomShuffleQueue ReaderBase RegisterGradient RunMetadata RunOptions Session SessionLog
        SparseConditionalAccumulator SparseFeature SparseTensor SparseTensorSpec SparseTensorValue Summary
        SummaryMetadata TFRecordReader Tensor TensorArray TensorArraySpec TensorInfo TensorShape TensorSpec
        TextLineReader TypeSpec UnconnectedGradients VarLenFeature Variable VariableAggregation VariableScope
        VariableSynchronization WholeFileReader abs accumulate_n acos acosh add add_check_numerics_ops add_n
        add_to_collection add_to_collections all_variables angle arg_max arg_min argmax argmin argsort
        as_dtype as_string asin asinh assert_equal assert_greater assert_greater_equal assert_integer
        assert_less assert_less_equal assert_near assert_negative assert_non_negative assert_non_positive
        assert_none_equal assert_positive assert_proper_iterable assert_rank assert_rank_at_least
        assert_rank_in assert_same_float_dtype assert_scalar assert_type assert_variables_initialized assign
        assign_add assign_sub atan atan2 atanh batch_gather batch_scatter_update batch_to_space
        batch_to_space_nd betainc bincount bitcast boolean_mask broadcast_dynamic_shape broadcast_static_shape
        broadcast_to case cast ceil check_numerics cholesky cholesky_solve clip_by_average_norm
        clip_by_global_norm clip_by_norm clip_by_value colocate_with complex concat cond confusion_matrix conj
        constant constant_initializer container control_dependencies control_flow_v2_enabled convert_to_tensor
        convert_to_tensor_or_indexed_slices convert_to_tensor_or_sparse_tensor cos cosh count_nonzero
        count_up_to create_partitioned_variables cross cumprod cumsum custom_gradient decode_base64
        decode_compressed decode_csv decode_json_example decode_raw delete_session_tensor depth_to_space
        dequantize deserialize_many_sparse device diag diag_part digamma dimension_at_index dimension_value
        disable_control_flow_v2 disable_eager_execution disable_resource_variables disable_tensor_equality
        disable_v2_behavior disable_v2_tensorshape div div_no_nan divide dynamic_partition dynamic_stitch
        edit_distance einsum enable_control_flow_v2 enable_eager_execution enable_resource_variables
        enable_tensor_equality enable_v2_behavior enable_v2_tensorshape encode_base64 ensure_shape equal erf
        erfc executing_eagerly exp expand_dims expm1 extract_image_patches extract_volume_patches eye
        fake_quant_with_min_max_args fake_quant_with_min_max_args_gradient fake_quant_with_min_max_vars
        fake_quant_with_min_max_vars_gradient fake_quant_with_min_max_vars_per_channel
        fake_quant_with_min_max_vars_per_channel_gradient fft fft2d fft3d fill fingerprint
        fixed_size_partitioner floor floor_div floordiv floormod foldl foldr function gather gather_nd
        get_collection get_collection_ref get_default_graph get_default_session get_local_variable get_logger
        get_seed get_session_handle get_session_tensor get_static_value get_variable get_variable_scope
        global_norm global_variables global_variables_initializer glorot_normal_initializer
        glorot_uniform_initializer grad_pass_through gradients greater greater_equal group guarantee_const
        hessians histogram_fixed_width histogram_fixed_width_bins identity identity_n ifft ifft2d ifft3d
        igamma igammac imag import_graph_def init_scope initialize_all_tables initialize_all_variables
        initialize_local_variables initialize_variables invert_permutation is_finite is_inf is_nan
        is_non_decreasing is_numeric_tensor is_strictly_increasing is_tensor is_variable_initialized lbeta
        less less_equal lgamma lin_space linspace load_file_system_library load_library load_op_library
        local_variables local_variables_initializer log log1p log_sigmoid logical_and logical_not logical_or
        logical_xor make_ndarray make_template make_tensor_proto map_fn matching_files matmul matrix_band_part
        matrix_determinant matrix_diag matrix_diag_part matrix_inverse matrix_set_diag matrix_solve
        matrix_solve_ls matrix_square_root matrix_transpose matrix_triangular_solve maximum meshgrid
        min_max_variable_partitioner minimum mod model_variables moving_average_variables multinomial multiply
        name_scope negative no_gradient no_op no_regularizer nondifferentiable_batch_function norm not_equal
        numpy_function one_hot ones ones_initializer ones_like op_scope orthogonal_initializer pad
        parallel_stack parse_example parse_single_example parse_single_sequence_example parse_tensor
        placeholder placeholder_with_default polygamma pow print py_func py_function qr quantize quantize_v2
        quantized_concat random_crop random_gamma random_normal random_normal_initializer random_poisson
        random_shuffle random_uniform random_uniform_initializer range rank read_file real realdiv reciprocal
        recompute_grad reduce_all reduce_any reduce_join reduce_logsumexp reduce_max reduce_mean reduce_min
        reduce_prod reduce_sum regex_replace register_tensor_conversion_function repeat
        report_uninitialized_variables required_space_to_batch_paddings reset_default_graph reshape
        resource_variables_enabled reverse reverse_sequence reverse_v2 rint roll round rsqrt saturate_cast
        scalar_mul scan scatter_add scatter_div scatter_max scatter_min scatter_mul scatter_nd scatter_nd_add
        scatter_nd_sub scatter_nd_update scatter_sub scatter_update searchsorted segment_max segment_mean
        segment_min segment_prod segment_sum self_adjoint_eig self_adjoint_eigvals sequence_mask
        serialize_many_sparse serialize_sparse serialize_tensor set_random_seed setdiff1d shape shape_n
        sigmoid sign sin sinh size slice sort space_to_batch space_to_batch_nd space_to_depth sparse_add
        sparse_concat sparse_fill_empty_rows sparse_mask sparse_matmul sparse_maximum sparse_merge
        sparse_minimum sparse_placeholder sparse_reduce_max sparse_reduce_max_sparse sparse_reduce_sum
        sparse_reduce_sum_sparse sparse_reorder sparse_reset_shape sparse_reshape sparse_retain
        sparse_segment_mean sparse_segment_sqrt_n sparse_segment_sum sparse_slice sparse_softmax sparse_split
        sparse_tensor_dense_matmul sparse_tensor_to_dense sparse_to_dense sparse_to_indicator sparse_transpose
        split sqrt square squared_difference squeeze stack stop_gradient strided_slice string_join
        string_split string_strip string_to_hash_bucket string_to_hash_bucket_fast
        string_to_hash_bucket_strong string_to_number substr subtract svd switch_case tables_initializer tan
        tanh tensor_scatter_add tensor_scatter_nd_add tensor_scatter_nd_sub tensor_scatter_nd_update
        tensor_scatter_sub tensor_scatter_update tensordot tile timestamp to_bfloat16 to_complex128
        to_complex64 to_double to_float to_int32 to_int64 trace trainable_variables transpose truediv
        truncated_normal truncated_normal_initializer truncatediv truncatemod tuple
        uniform_unit_scaling_initializer unique unique_with_counts unravel_index unsorted_segment_max
        unsorted_segment_mean unsorted_segment_min unsorted_segment_prod unsorted_segment_sqrt_n
        unsorted_segment_sum unstack variable_axis_size_partitioner variable_creator_scope variable_op_scope
        variable_scope variables_initializer variance_scaling_initializer vectorized_map
        verify_tensor_all_finite where where_v2 while_loop wrap_function write_file zeros zeros_initializer
        zeros_like zeta
    """,
    "app": """
        run
    """,
    "bitwise": """
        bitwise_and bitwise_or bitwise_xor invert left_shift right_shift
    """,
    "compat": """
        as_bytes as_str as_str_any as_text dimension_at_index dimension_value forward_compatibility_horizon
        forward_compatible path_to_str
    """,
    "contrib.framework": """
        BoundedTensorSpec RecordInput TensorSpec VariableDeviceChooser add_arg_scope add_model_variable
        arg_scope arg_scoped_arguments argsort assert_global_step assert_or_get_global_step
        assert_same_float_dtype assert_scalar assert_scalar_int assign_from_checkpoint
        assign_from_checkpoint_fn assign_from_values assign_from_values_fn convert_to_tensor_or_sparse_tensor
        convolutional_delta_orthogonal convolutional_orthogonal_1d convolutional_orthogonal_2d
        convolutional_orthogonal_3d create_global_step current_arg_scope deprecated deprecated_arg_values
        deprecated_args filter_variables fuse_op get_global_step get_graph_from_inputs get_local_variables
        get_model_variables get_name_scope get_or_create_global_step get_placeholders get_trainable_variables
        get_unique_variable get_variable_full_name get_variables get_variables_by_name get_variables_by_suffix
        get_variables_to_restore global_variable has_arg_scope init_from_checkpoint is_tensor list_variables
        load_and_remap_matrix_initializer load_checkpoint load_embedding_initializer
        load_linear_multiclass_bias_initializer load_variable load_variable_slot_initializer local_variable
        model_variable prepend_name_scope py_func reduce_sum_n remove_squeezable_dimensions smart_case
        smart_cond smart_constant_value sort strip_name_scope variable with_same_shape with_shape
        zero_initializer
    """,
    "contrib.layers": """
        GDN RevBlock apply_regularization avg_pool2d avg_pool3d batch_norm bias_add bow_encoder
        bucketized_column check_feature_columns conv1d conv2d conv2d_in_plane conv2d_transpose conv3d
        conv3d_transpose convolution convolution1d convolution2d convolution2d_in_plane
        convolution2d_transpose convolution3d convolution3d_transpose create_feature_spec_for_parsing
        crossed_column dense_to_sparse dropout elu embed_sequence embedding_column embedding_lookup_unique
        flatten fully_connected gdn group_norm images_to_sequence infer_real_valued_columns
        input_from_feature_columns instance_norm joint_weighted_sum_from_feature_columns l1_l2_regularizer
        l1_regularizer l2_regularizer layer_norm legacy_fully_connected legacy_linear legacy_relu linear
        make_place_holder_tensors_for_base_features max_pool2d max_pool3d maxout multi_class_target
        one_hot_column one_hot_encoding optimize_loss parse_feature_columns_from_examples
        parse_feature_columns_from_sequence_examples real_valued_column recompute_grad regression_target relu
        relu6 repeat rev_block safe_embedding_lookup_sparse scale_gradient scattered_embedding_column
        separable_conv2d separable_convolution2d sequence_input_from_feature_columns sequence_to_images
        shared_embedding_columns softmax sparse_column_with_hash_bucket sparse_column_with_integerized_feature
        sparse_column_with_keys sparse_column_with_vocabulary_file spatial_softmax stack sum_regularizer
        summarize_activation summarize_activations summarize_collection summarize_tensor summarize_tensors
        transform_features unit_norm variance_scaling_initializer weighted_sparse_column
        weighted_sum_from_feature_columns xavier_initializer xavier_initializer_conv2d
    """,
    "contrib.rnn": """
        AttentionCellWrapper BasicLSTMCell BasicRNNCell BidirectionalGridLSTMCell CompiledWrapper
        Conv1DLSTMCell Conv2DLSTMCell Conv3DLSTMCell ConvLSTMCell CoupledInputForgetGateLSTMCell DeviceWrapper
        DropoutWrapper EmbeddingWrapper FusedRNNCell FusedRNNCellAdaptor GLSTMCell GRUBlockCell GRUBlockCellV2
        GRUCell GridLSTMCell HighwayWrapper IndRNNCell IndyGRUCell IndyLSTMCell InputProjectionWrapper
        IntersectionRNNCell LSTMBlockCell LSTMBlockFusedCell LSTMBlockWrapper LSTMCell LSTMStateTuple
        LayerNormBasicLSTMCell LayerRNNCell MultiRNNCell NASCell OutputProjectionWrapper PhasedLSTMCell
        RNNCell ResidualWrapper SRUCell TimeFreqLSTMCell TimeReversedFusedRNN UGRNNCell
        best_effort_input_batch_size stack_bidirectional_dynamic_rnn stack_bidirectional_rnn
        static_bidirectional_rnn static_rnn static_state_saving_rnn transpose_batch_time
    """,
    "contrib.seq2seq": """
        AttentionMechanism AttentionWrapper AttentionWrapperState BahdanauAttention BahdanauMonotonicAttention
        BasicDecoder BasicDecoderOutput BeamSearchDecoder BeamSearchDecoderOutput BeamSearchDecoderState
        CustomHelper Decoder FinalBeamSearchDecoderOutput GreedyEmbeddingHelper Helper InferenceHelper
        LuongAttention LuongMonotonicAttention SampleEmbeddingHelper ScheduledEmbeddingTrainingHelper
        ScheduledOutputTrainingHelper TrainingHelper dynamic_decode gather_tree hardmax monotonic_attention
        safe_cumprod sequence_loss tile_batch
    """,
    "data": """
        Dataset DatasetSpec FixedLengthRecordDataset Iterator Options TFRecordDataset TextLineDataset
        get_output_classes get_output_shapes get_output_types make_initializable_iterator
        make_one_shot_iterator
    """,
    "debugging": """
        Assert assert_all_finite assert_equal assert_greater assert_greater_equal assert_integer assert_less
        assert_less_equal assert_near assert_negative assert_non_negative assert_non_positive
        assert_none_equal assert_positive assert_proper_iterable assert_rank assert_rank_at_least
        assert_rank_in assert_same_float_dtype assert_scalar assert_shapes assert_type check_numerics
        get_log_device_placement is_finite is_inf is_nan is_non_decreasing is_numeric_tensor
        is_strictly_increasing set_log_device_placement
    """,
    "dtypes": """
        DType as_dtype as_string cast complex saturate_cast
    """,
    "errors": """
        AbortedError AlreadyExistsError CancelledError DataLossError DeadlineExceededError
        FailedPreconditionError InternalError InvalidArgumentError NotFoundError OpError OutOfRangeError
        PermissionDeniedError ResourceExhaustedError UnauthenticatedError UnavailableError UnimplementedError
        UnknownError error_code_from_exception_type exception_type_from_error_code
        raise_exception_on_not_ok_status
    """,
    "flags": """
        ArgumentParser ArgumentSerializer BaseListParser BooleanFlag BooleanParser CantOpenFlagFileError
        CsvListSerializer DEFINE DEFINE_alias DEFINE_bool DEFINE_boolean DEFINE_enum DEFINE_enum_class
        DEFINE_flag DEFINE_float DEFINE_integer DEFINE_list DEFINE_multi DEFINE_multi_enum
        DEFINE_multi_enum_class DEFINE_multi_float DEFINE_multi_integer DEFINE_multi_string
        DEFINE_spaceseplist DEFINE_string DuplicateFlagError EnumClassFlag EnumClassListSerializer
        EnumClassParser EnumClassSerializer EnumFlag EnumParser Error FLAGS Flag FlagHolder
        FlagNameConflictsWithMethodError FlagValues FloatParser IllegalFlagValueError IntegerParser ListParser
        ListSerializer MultiEnumClassFlag MultiFlag UnparsedFlagAccessError UnrecognizedFlagError
        ValidationError WhitespaceSeparatedListParser adopt_module_key_flags declare_key_flag
        disclaim_key_flags doc_to_help flag_dict_to_args get_help_width mark_bool_flags_as_mutual_exclusive
        mark_flag_as_required mark_flags_as_mutual_exclusive mark_flags_as_required multi_flags_validator
        override_value register_multi_flags_validator register_validator set_default text_wrap validator
    """,
    "gfile": """
        Copy DeleteRecursively Exists FastGFile GFile Glob IsDirectory ListDirectory MakeDirs MkDir Open
        Remove Rename Stat Walk
    """,
    "graph_util": """
        convert_variables_to_constants extract_sub_graph import_graph_def must_run_on_cpu
        remove_training_nodes tensor_shape_from_node_def_name
    """,
    "image": """
        ResizeMethod adjust_brightness adjust_contrast adjust_gamma adjust_hue adjust_jpeg_quality
        adjust_saturation central_crop combined_non_max_suppression convert_image_dtype crop_and_resize
        crop_to_bounding_box decode_and_crop_jpeg decode_bmp decode_gif decode_image decode_jpeg decode_png
        draw_bounding_boxes encode_jpeg encode_png extract_glimpse extract_image_patches extract_jpeg_shape
        extract_patches flip_left_right flip_up_down grayscale_to_rgb hsv_to_rgb image_gradients is_jpeg
        non_max_suppression non_max_suppression_overlaps non_max_suppression_padded
        non_max_suppression_with_scores pad_to_bounding_box per_image_standardization psnr random_brightness
        random_contrast random_crop random_flip_left_right random_flip_up_down random_hue random_jpeg_quality
        random_saturation resize resize_area resize_bicubic resize_bilinear resize_image_with_crop_or_pad
        resize_image_with_pad resize_images resize_nearest_neighbor resize_with_crop_or_pad rgb_to_grayscale
        rgb_to_hsv rgb_to_yiq rgb_to_yuv rot90 sample_distorted_bounding_box sobel_edges ssim ssim_multiscale
        total_variation transpose transpose_image yiq_to_rgb yuv_to_rgb
    """,
    "initializers": """
        constant global_variables glorot_normal glorot_uniform he_normal he_uniform identity lecun_normal
        lecun_uniform local_variables ones orthogonal random_normal random_uniform tables_initializer
        truncated_normal uniform_unit_scaling variables variance_scaling zeros
    """,
    "io": """
        FixedLenFeature FixedLenSequenceFeature PaddingFIFOQueue PriorityQueue QueueBase RandomShuffleQueue
        SparseFeature TFRecordCompressionType TFRecordOptions TFRecordWriter VarLenFeature
        decode_and_crop_jpeg decode_base64 decode_bmp decode_compressed decode_csv decode_gif decode_image
        decode_jpeg decode_json_example decode_png decode_proto decode_raw deserialize_many_sparse
        encode_base64 encode_jpeg encode_proto extract_jpeg_shape is_jpeg match_filenames_once matching_files
        parse_example parse_sequence_example parse_single_example parse_single_sequence_example parse_tensor
        read_file serialize_many_sparse serialize_sparse serialize_tensor tf_record_iterator write_file
        write_graph
    """,
    "layers": """
        AveragePooling1D AveragePooling2D AveragePooling3D BatchNormalization Conv1D Conv2D Conv2DTranspose
        Conv3D Conv3DTranspose Dense Dropout Flatten InputSpec Layer MaxPooling1D MaxPooling2D MaxPooling3D
        SeparableConv1D SeparableConv2D average_pooling1d average_pooling2d average_pooling3d
        batch_normalization conv1d conv2d conv2d_transpose conv3d conv3d_transpose dense dropout flatten
        max_pooling1d max_pooling2d max_pooling3d separable_conv1d separable_conv2d
    """,
    "linalg": """
        LinearOperator LinearOperatorAdjoint LinearOperatorBlockDiag LinearOperatorCirculant
        LinearOperatorCirculant2D LinearOperatorCirculant3D LinearOperatorComposition LinearOperatorDiag
        LinearOperatorFullMatrix LinearOperatorHouseholder LinearOperatorIdentity LinearOperatorInversion
        LinearOperatorKronecker LinearOperatorLowRankUpdate LinearOperatorLowerTriangular
        LinearOperatorScaledIdentity LinearOperatorToeplitz LinearOperatorZeros adjoint band_part cholesky
        cholesky_solve cross det diag diag_part eigh eigvalsh einsum expm eye global_norm inv l2_normalize
        logdet logm lstsq lu matmul matrix_rank matrix_transpose matvec norm normalize pinv qr set_diag
        slogdet solve sqrtm svd tensor_diag tensor_diag_part tensordot trace transpose triangular_solve
        tridiagonal_matmul tridiagonal_solve
    """,
    "logging": """
        TaskLevelStatusMessage debug error fatal flush get_verbosity info log log_every_n log_first_n log_if
        set_verbosity vlog warn warning
    """,
    "losses": """
        Reduction absolute_difference add_loss compute_weighted_loss cosine_distance get_losses
        get_regularization_loss get_regularization_losses get_total_loss hinge_loss huber_loss log_loss
        mean_pairwise_squared_error mean_squared_error sigmoid_cross_entropy softmax_cross_entropy
        sparse_softmax_cross_entropy
    """,
    "manip": """
        batch_to_space_nd gather_nd reshape reverse roll scatter_nd space_to_batch_nd tile
    """,
    "math": """
        abs accumulate_n acos acosh add add_n angle argmax argmin asin asinh atan atan2 atanh bessel_i0
        bessel_i0e bessel_i1 bessel_i1e betainc bincount ceil confusion_matrix conj cos cosh count_nonzero
        cumprod cumsum cumulative_logsumexp digamma divide divide_no_nan equal erf erfc exp expm1 floor
        floordiv floormod greater greater_equal igamma igammac imag in_top_k invert_permutation is_finite
        is_inf is_nan is_non_decreasing is_strictly_increasing l2_normalize lbeta less less_equal lgamma log
        log1p log_sigmoid log_softmax logical_and logical_not logical_or logical_xor maximum minimum mod
        multiply multiply_no_nan negative nextafter not_equal polygamma polyval pow real reciprocal
        reciprocal_no_nan reduce_all reduce_any reduce_euclidean_norm reduce_logsumexp reduce_max reduce_mean
        reduce_min reduce_prod reduce_std reduce_sum reduce_variance rint round rsqrt scalar_mul segment_max
        segment_mean segment_min segment_prod segment_sum sigmoid sign sin sinh softmax softplus softsign sqrt
        square squared_difference subtract tan tanh top_k truediv unsorted_segment_max unsorted_segment_mean
        unsorted_segment_min unsorted_segment_prod unsorted_segment_sqrt_n unsorted_segment_sum xdivy xlogy
        zero_fraction zeta
    """,
    "metrics": """
        accuracy auc average_precision_at_k false_negatives false_negatives_at_thresholds false_positives
        false_positives_at_thresholds mean mean_absolute_error mean_cosine_distance mean_iou
        mean_per_class_accuracy mean_relative_error mean_squared_error mean_tensor percentage_below precision
        precision_at_k precision_at_thresholds precision_at_top_k recall recall_at_k recall_at_thresholds
        recall_at_top_k root_mean_squared_error sensitivity_at_specificity sparse_average_precision_at_k
        sparse_precision_at_k specificity_at_sensitivity true_negatives true_negatives_at_thresholds
        true_positives true_positives_at_thresholds
    """,
    "nn": """
        all_candidate_sampler atrous_conv2d atrous_conv2d_transpose avg_pool avg_pool1d avg_pool2d avg_pool3d
        avg_pool_v2 batch_norm_with_global_normalization batch_normalization bias_add
        bidirectional_dynamic_rnn collapse_repeated compute_accidental_hits compute_average_loss conv1d
        conv1d_transpose conv2d conv2d_backprop_filter conv2d_backprop_input conv2d_transpose conv3d
        conv3d_backprop_filter conv3d_backprop_filter_v2 conv3d_transpose conv_transpose convolution crelu
        ctc_beam_search_decoder ctc_beam_search_decoder_v2 ctc_greedy_decoder ctc_loss ctc_loss_v2
        ctc_unique_labels depth_to_space depthwise_conv2d depthwise_conv2d_backprop_filter
        depthwise_conv2d_backprop_input depthwise_conv2d_native depthwise_conv2d_native_backprop_filter
        depthwise_conv2d_native_backprop_input dilation2d dropout dynamic_rnn elu embedding_lookup
        embedding_lookup_sparse erosion2d fixed_unigram_candidate_sampler fractional_avg_pool
        fractional_max_pool fused_batch_norm in_top_k l2_loss l2_normalize leaky_relu
        learned_unigram_candidate_sampler local_response_normalization log_poisson_loss log_softmax
        log_uniform_candidate_sampler lrn max_pool max_pool1d max_pool2d max_pool3d max_pool_v2
        max_pool_with_argmax moments nce_loss normalize_moments pool quantized_avg_pool quantized_conv2d
        quantized_max_pool quantized_relu_x raw_rnn relu relu6 relu_layer safe_embedding_lookup_sparse
        sampled_softmax_loss scale_regularization_loss selu separable_conv2d sigmoid
        sigmoid_cross_entropy_with_logits softmax softmax_cross_entropy_with_logits
        softmax_cross_entropy_with_logits_v2 softplus softsign space_to_batch space_to_depth
        sparse_softmax_cross_entropy_with_logits static_bidirectional_rnn static_rnn static_state_saving_rnn
        sufficient_statistics swish tanh top_k uniform_candidate_sampler weighted_cross_entropy_with_logits
        weighted_moments with_space_to_batch xw_plus_b zero_fraction
    """,
    "nn.rnn_cell": """
        BasicLSTMCell BasicRNNCell DeviceWrapper DropoutWrapper GRUCell LSTMCell LSTMStateTuple MultiRNNCell
        RNNCell ResidualWrapper
    """,
    "python_io": """
        TFRecordCompressionType TFRecordOptions TFRecordWriter tf_record_iterator
    """,
    "quantization": """
        dequantize fake_quant_with_min_max_args fake_quant_with_min_max_args_gradient
        fake_quant_with_min_max_vars fake_quant_with_min_max_vars_gradient
        fake_quant_with_min_max_vars_per_channel fake_quant_with_min_max_vars_per_channel_gradient quantize
        quantize_and_dequantize quantized_concat
    """,
    "queue": """
        FIFOQueue PaddingFIFOQueue PriorityQueue QueueBase RandomShuffleQueue
    """,
    "random": """
        all_candidate_sampler categorical fixed_unigram_candidate_sampler gamma get_seed
        learned_unigram_candidate_sampler log_uniform_candidate_sampler multinomial normal poisson
        set_random_seed shuffle stateless_categorical stateless_multinomial stateless_normal
        stateless_truncated_normal stateless_uniform truncated_normal uniform uniform_candidate_sampler
    """,
    "sets": """
        difference intersection set_difference set_intersection set_size set_union size union
    """,
    "signal": """
        dct fft fft2d fft3d fftshift frame hamming_window hann_window idct ifft ifft2d ifft3d ifftshift
        inverse_stft inverse_stft_window_fn irfft irfft2d irfft3d linear_to_mel_weight_matrix
        mfccs_from_log_mel_spectrograms overlap_and_add rfft rfft2d rfft3d stft
    """,
    "sparse": """
        SparseConditionalAccumulator SparseTensor add concat cross cross_hashed expand_dims eye
        fill_empty_rows from_dense mask matmul maximum merge minimum placeholder reduce_max reduce_max_sparse
        reduce_sum reduce_sum_sparse reorder reset_shape reshape retain segment_mean segment_sqrt_n
        segment_sum slice softmax sparse_dense_matmul split to_dense to_indicator transpose
    """,
    "spectral": """
        dct fft fft2d fft3d idct ifft ifft2d ifft3d irfft irfft2d irfft3d rfft rfft2d rfft3d
    """,
    "strings": """
        as_string bytes_split format join length lower ngrams reduce_join regex_full_match regex_replace split
        strip substr to_hash_bucket to_hash_bucket_fast to_hash_bucket_strong to_number unicode_decode
        unicode_decode_with_offsets unicode_encode unicode_script unicode_split unicode_split_with_offsets
        unicode_transcode unsorted_segment_join upper
    """,
    "summary": """
        Event FileWriter FileWriterCache SessionLog Summary SummaryDescription TaggedRunMetadata
        all_v2_summary_ops audio get_summary_description histogram image initialize merge merge_all scalar
        tensor_summary text
    """,
    "test": """
        Benchmark StubOutForTesting TestCase assert_equal_graph_def benchmark_config compute_gradient
        compute_gradient_error create_local_cluster get_temp_dir gpu_device_name is_built_with_cuda
        is_built_with_gpu_support is_built_with_rocm is_gpu_available main test_src_dir_path
    """,
    "train": """
        AdadeltaOptimizer AdagradDAOptimizer AdagradOptimizer AdamOptimizer BytesList Checkpoint
        CheckpointManager CheckpointSaverHook CheckpointSaverListener ChiefSessionCreator ClusterDef
        ClusterSpec Coordinator Example ExponentialMovingAverage Feature FeatureList FeatureLists Features
        FeedFnHook FinalOpsHook FloatList FtrlOptimizer GlobalStepWaiterHook GradientDescentOptimizer
        Int64List JobDef LoggingTensorHook LooperThread MomentumOptimizer MonitoredSession
        MonitoredTrainingSession NanLossDuringTrainingError NanTensorHook NewCheckpointReader Optimizer
        ProfilerHook ProximalAdagradOptimizer ProximalGradientDescentOptimizer QueueRunner RMSPropOptimizer
        Saver SaverDef Scaffold SecondOrStepTimer SequenceExample Server ServerDef SessionCreator
        SessionManager SessionRunArgs SessionRunContext SessionRunHook SessionRunValues
        SingularMonitoredSession StepCounterHook StopAtStepHook SummarySaverHook Supervisor
        SyncReplicasOptimizer VocabInfo WorkerSessionCreator add_queue_runner assert_global_step
        basic_train_loop batch batch_join checkpoint_exists checkpoints_iterator cosine_decay
        cosine_decay_restarts create_global_step do_quantize_training_on_graphdef exponential_decay
        export_meta_graph generate_checkpoint_state_proto get_checkpoint_mtimes get_checkpoint_state
        get_global_step get_or_create_global_step global_step import_meta_graph init_from_checkpoint
        input_producer inverse_time_decay latest_checkpoint limit_epochs linear_cosine_decay list_variables
        load_checkpoint load_variable match_filenames_once maybe_batch maybe_batch_join maybe_shuffle_batch
        maybe_shuffle_batch_join natural_exp_decay noisy_linear_cosine_decay piecewise_constant
        piecewise_constant_decay polynomial_decay range_input_producer remove_checkpoint replica_device_setter
        sdca_fprint sdca_optimizer sdca_shrink_l1 shuffle_batch shuffle_batch_join slice_input_producer
        start_queue_runners string_input_producer summary_iterator update_checkpoint_state warm_start
        write_graph
    """,
}

TENSORFLOW_NAMES = frozenset(
    f"{space}.{name}" if space else name for space, words in _BY_NAMESPACE.items() for name in words.split()
)
