"""What the linter knows about torch's names: which calls return views, copies, integers, plain Python values."""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


VIEWS = _words("""
    view view_as transpose t permute squeeze unsqueeze expand expand_as narrow select detach swapaxes swapdims movedim moveaxis unflatten
    diagonal as_strided unfold view_as_real view_as_complex real imag numpy alias adjoint
""")
VIEW_ATTRIBUTES = _words("""
    T mT H mH data real imag
""")
VIEW_SEQUENCES = _words("""
    split chunk unbind tensor_split hsplit vsplit dsplit
""")
MAYBE_COPIES = _words("""
    contiguous reshape reshape_as flatten ravel
""")
CASTS = _words("""
    to type type_as float half bfloat16 double cuda cpu npu xpu to_dense asarray as_tensor int long bool
""")
META_ATTRIBUTES = _words("""
    shape dtype device ndim layout is_cuda is_sparse is_quantized is_meta is_cpu is_xpu is_npu is_mps is_leaf is_nested itemsize nbytes
    requires_grad grad_fn names output_nr _version
""")
META_METHODS = _words("""
    size dim stride numel nelement ndimension is_contiguous is_floating_point is_complex element_size storage_offset get_device is_pinned
    is_shared dim_order is_signed is_coalesced __len__
""")
PYTHON_RESULTS = _words("""
    item tolist data_ptr __len__ __bool__
""")
LIKE = _words("""
    zeros_like ones_like empty_like full_like rand_like randn_like randint_like new_zeros new_empty new_ones new_full new new_tensor
""")
FACTORIES = _words("""
    zeros ones empty full rand randn randint tensor arange linspace logspace eye randperm empty_strided as_tensor scalar_tensor from_numpy
    asarray normal bernoulli tril_indices triu_indices
""")
DEVICE_FACTORIES = _words("""
    zeros ones empty full rand randn arange linspace eye randperm tensor randint
""")
INTEGER_RESULTS = _words("""
    argmax argmin argsort nonzero randperm long int bool short char byte eq ne lt le gt ge isnan isinf isfinite isclose logical_and logical_or
    logical_not logical_xor any all searchsorted bucketize bincount histc multinomial signbit tril_indices triu_indices count_nonzero randint
    one_hot greater less equal isposinf isneginf
""")
FLOAT_RESULTS = _words("""
    exp log log2 log10 log1p expm1 sqrt rsqrt sin cos tan tanh sigmoid softmax log_softmax logsumexp mean var std norm erf erfc gelu silu float
    half bfloat16 double rand randn rand_like randn_like softplus layer_norm linear cosine_similarity cdist
""")
PAIR_WITH_INDICES = _words("""
    sort topk mode kthvalue cummax cummin median nanmedian
""")
SAME_DTYPE = _words("""
    clone contiguous view reshape sum prod cumsum cumprod mul add sub neg abs clamp transpose permute t flatten squeeze unsqueeze expand
    zeros_like ones_like empty_like full_like new_zeros new_empty new_ones new_full detach flip roll gather index_select scatter scatter_add
    matmul mm bmm addmm einsum cat stack where masked_fill relu pow square minimum maximum repeat repeat_interleave tril triu outer dot conj
""")
INPLACE_NOT_WRITES = _words("""
    requires_grad_ retain_grad_ share_memory_ pin_memory_ rename_ names_ is_shared_ _
""")
MATMULS = _words("""
    mm matmul bmm addmm baddbmm addbmm einsum linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d tensordot mv
""")
NONLINEAR = _words("""
    sign sgn abs absolute clamp clamp_min clamp_max clip norm vector_norm relu relu6 tanh sigmoid exp log sqrt rsqrt pow square max min amax
    amin argmax softmax normalize round floor ceil trunc hardtanh clip_grad_norm_ clip_grad_value_
""")
NONLINEAR_WRITES = _words("""
    sign_ sgn_ abs_ clamp_ clamp_min_ clamp_max_ clip_ relu_ tanh_ sigmoid_ exp_ log_ sqrt_ rsqrt_ pow_ square_ round_ floor_ ceil_ trunc_
    hardtanh_
""")
COLLECTIVES = _words("""
    all_reduce broadcast reduce all_reduce_coalesced allreduce
""")
OUTPUT_FIRST_COLLECTIVES = _words("""
    all_gather_into_tensor _all_gather_base reduce_scatter_tensor _reduce_scatter_base reduce_scatter all_to_all_single scatter recv irecv
""")
METHODS_TESTED = _words("""
    is_contiguous is_floating_point is_complex is_pinned is_shared is_signed is_coalesced is_nonzero is_inference is_conj is_neg numel dim item
    any all
""")
TENSOR_EVIDENCE = (
    VIEWS
    | META_ATTRIBUTES
    | MAYBE_COPIES
    | frozenset(("T", "mT", "new_zeros", "new_empty", "new_ones", "new_full", "data_ptr", "is_contiguous", "numel", "requires_grad", "new_tensor"))
    | _words("""
    clone sum mean exp log sqrt sigmoid tanh softmax abs pow mm matmul bmm clamp sign argmax logsumexp masked_fill scatter_add index_select
    cumsum
""")
) - _words("""
    select names data type real imag expand t
""")
CTX_METHODS = _words("""
    save_for_backward save_for_forward mark_dirty mark_non_differentiable mark_shared_storage set_materialize_grads maybe_clear_saved_tensors
    register_hook register_prehook name _register_hook_dict
""")
CTX_ATTRIBUTES = CTX_METHODS | _words("""
    needs_input_grad saved_tensors saved_variables saved_for_forward to_save dirty_tensors non_differentiable materialize_grads next_functions
    metadata _fwd_used_autocast _dtype _raw_saved_tensors _sequence_nr _input_metadata _materialize_non_diff_grads
    _clear_saved_tensors_on_access clear_saved_tensors_on_access __class__ __dict__ _is_compiled_autograd_tracing _autograd_function_id
    _get_compiled_autograd_symints
""")
NOT_TENSORS = _words("""
    is_grad_enabled is_tensor get_rng_state get_device_properties current_device is_autocast_enabled get_autocast_dtype get_autocast_gpu_dtype
    is_floating_point is_complex numel device dtype Size Generator finfo iinfo no_grad enable_grad set_grad_enabled promote_types result_type
    is_available device_count current_stream Event Stream equal allclose is_same_size seed initial_seed manual_seed Graph
""")
SUBMODULES_NOT_TENSOR = (
    "torch.cuda.",
    "torch.distributed.",
    "torch.random.",
    "torch.backends.",
    "torch.utils.",
    "torch.autograd.",
    "torch.compiler.",
    "torch.jit.",
    "torch.version.",
    "torch.library.",
    "torch.ops.",
    "torch._C.",
    "torch.nn.init.",
    "torch.profiler.",
    "torch.amp.",
)
TUPLE_RESULTS = _words("""
    svd qr eigh eig slogdet lstsq unique unique_consecutive std_mean var_mean frexp meshgrid broadcast_tensors aminmax geqrf lu lu_unpack lu_factor
    inv_ex cholesky_ex solve_ex ldl_factor native_layer_norm native_group_norm native_batch_norm symeig batch_norm_stats
""")
OPERATION_MODULES = frozenset(("torch", "torch.nn.functional", "torch.linalg", "torch.special", "torch.fft", "torch.functional", "torch.Tensor"))
