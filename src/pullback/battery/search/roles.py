"""What torch's functions and methods say about what is passed to them."""

from __future__ import annotations

from collections.abc import Iterator

from .traits import Trait

PASS_THROUGH = frozenset(
    "contiguous detach clone float double half to cuda cpu numpy astype type type_as requires_grad_ bfloat16 requires_grad view_as".split()  # noqa: SIM905
)
REFUSED_CALLS = frozenset(
    {"eval", "exec", "compile", "open", "system", "popen", "Popen", "import_module", "__import__", "urlopen", "socket", "unlink", "rmtree", "remove"}
)

_METHODS = """
size dim view reshape contiguous detach sum mean abs sign clamp exp log sqrt pow round floor gt ge lt le masked_fill fill_ : tensor 1.5
unsqueeze squeeze transpose permute t expand new_zeros new_empty new new_tensor numel max min norm matmul mm bmm gather : tensor 1.5
scatter_add_ index_select chunk flatten numpy is_contiguous stride dot softmax sigmoid tanh zero_ copy_ mul_ add_ sub_ div_ : tensor 1.5
clamp_ data_ptr element_size expand_as view_as type_as ne eq requires_grad_ : tensor 1.5
clone item : tensor 1.0
long : index 1.5 tensor 0.6
int : index 1.0 tensor 0.6
bool : mask 1.5 tensor 0.4
float : tensor 0.6 mask 0.4
tolist : index 1.0 tensor 0.5
logical_not : mask 2.0
any all : mask 0.6
parameters named_parameters state_dict modules : module 3.0
train eval : module 2.0
forward : module 2.5
append : tensors 1.0
keys items get : dict 2.0
values : dict 1.0
lower upper startswith endswith : str 3.0
rank : group 2.0
"""
_ATTRIBUTES = """
shape T mT data grad real imag : tensor 1.0
device dtype : tensor 0.5
requires_grad : tensor 0.6
ndim is_cuda : tensor 1.5
training : module 1.5
weight : module 1.0
bias : module 0.6
"""
_FUNCTIONS = """
gather : tensor dim index
take_along_dim : tensor index dim
index_select : tensor dim index1
index_fill : tensor dim index1 float
scatter scatter_ scatter_add scatter_add_ : tensor dim index tensor
scatter_reduce scatter_reduce_ : tensor dim index tensor str
index_add index_add_ index_copy index_copy_ : tensor dim index1 tensor
index_put_ : tensor indices tensor
embedding : index matrix2
one_hot : index int
sparse_coo_tensor : pairs vector shape
bincount : index1
cross_entropy nll_loss : matrix2 labels
where : mask numeric numeric
masked_fill masked_fill_ : tensor mask float
masked_select : tensor mask
masked_scatter : tensor mask tensor
softmax log_softmax logsumexp amax amin argmax argmin cumsum cumprod sort argsort prod std var unsqueeze squeeze unbind max min : tensor dim
sum mean : tensor dim bool
topk kthvalue chunk split repeat_interleave : tensor k dim
norm : tensor float dim
flip permute : tensor dims
roll diff fft rfft irfft : tensor int dim
flatten transpose : tensor dim dim
select : tensor dim int
narrow : tensor dim int int
clamp clamp_ clip : tensor lower upper
pow mul add sub div float_power : tensor numeric
leaky_relu elu full_like : tensor float
softplus hardtanh threshold : tensor float float
dropout : tensor p bool
bernoulli asin acos atanh erfinv logit : unit
matmul : matrix matrix
mm cdist : matrix2 matrix2
bmm : matrix3 matrix3
mv : matrix2 vector
dot outer ger : vector vector
cross : tensor tensor dim
linear : matrix weight vector
addmm : vector matrix2 matrix2
baddbmm : tensor matrix3 matrix3
conv1d : matrix3 conv3 vector int int
conv2d : matrix4 conv4 vector int int
unfold avg_pool2d max_pool2d : matrix4 int
layer_norm : tensor ints vector vector float
batch_norm : tensor vector vector
group_norm : matrix3 int
interpolate : matrix4
pad : tensor ints
cholesky logdet sqrtm logm fractional_matrix_power : spd
inv inverse det slogdet matrix_exp trace : square
matrix_power : square int
eigh eigvalsh : symmetric
svd svdvals qr pinv : matrix2
solve : square matrix2
solve_triangular : tril matrix2
cholesky_solve : matrix2 tril
cholesky_inverse : tril
triu tril diag reduce : tensor int
view reshape expand repeat tile broadcast_to sum_to_size new_zeros new_empty new_ones : tensor shape
zeros ones empty rand randn : shape
cat stack concat : tensors dim
block_diag : tensors
range arange : int int int
eye manual_seed int : int
linspace : float float int
len : sized
all_reduce : tensor - group
all_gather : tensors tensor group
all_gather_into_tensor : tensor tensor group
reduce_scatter_tensor : tensor tensor - group
broadcast : tensor int group
get_world_size get_rank barrier : group
all_to_all_single mse_loss smooth_l1_loss maximum minimum heaviside copysign atan2 hypot : tensor tensor
binary_cross_entropy : unit binary
kl_div : tensor simplex
lgamma digamma log log2 sqrt rsqrt sqrt_ rsqrt_ : positive
acosh arccosh : above
exp tanh sigmoid relu abs sign round floor sin cos zeros_like ones_like empty_like rand_like randn_like isnan isfinite conj : tensor
logical_and logical_or : mask mask
logical_not : mask
bucketize : tensor vector
searchsorted : vector tensor
view_as_real : complex
fake_quantize_per_tensor_affine : tensor float int int int
einsum : str
float : float
bool : bool
"""


def _rows(table: str) -> Iterator[tuple[list[str], list[str]]]:
    for line in table.strip().splitlines():
        names, _, roles = line.partition(" : ")
        yield names.split(), roles.split()


def _weighted(table: str) -> dict[str, tuple[tuple[str, float], ...]]:
    return {name: tuple(zip(words[::2], map(float, words[1::2]), strict=True)) for names, words in _rows(table) for name in names}


METHOD_KINDS = _weighted(_METHODS)
ATTRIBUTE_KINDS = _weighted(_ATTRIBUTES)
FUNCTION_ROLES = {name: tuple("" if role == "-" else role for role in roles) for names, roles in _rows(_FUNCTIONS) for name in names}

KEYWORD_ROLES = {
    **dict.fromkeys(("dim", "axis"), "dim"),
    **{name: name for name in ("group", "index", "dtype", "device", "mask")},
    "keepdim": "bool",
    "eps": "float",
    "size": "shape",
}
_RANKS = {"matrix2": 2, "matrix3": 3, "matrix4": 4, "conv3": 3, "conv4": 4, "vector": 1, "index1": 1, "pairs": 2, "labels": 1, "weight": 2}
_DRAWS = {name: name for name in ("unit", "positive", "above", "binary", "simplex", "spd", "symmetric", "tril")}


def note_role(trait: Trait | None, role: str, weight: float) -> None:
    """Add what being passed in that role says about a parameter."""
    if trait is None or not role:
        return
    if role in ("dim", "k"):
        trait.score("int", 2.0 * weight)
        trait.usual["int"] = -1 if role == "dim" else 2
        if role == "dim":
            trait.role = "dim"
    elif role in ("index", "index1", "labels", "pairs"):
        trait.score("index", 2.5 * weight)
        if role == "pairs":
            trait.shape = trait.shape or (2, 4)
    elif role == "mask":
        trait.score("mask", 1.6 * weight)
    elif role in ("numeric", "lower", "upper"):
        trait.score("float", 0.5 * weight)
        trait.score("tensor", 0.4 * weight)
        if role != "numeric":
            trait.usual["float"] = -0.8 if role == "lower" else 0.9
    elif role in ("shape", "dims", "ints"):
        trait.score("ints", 1.6 * weight)
        trait.score("int", 0.9 * weight)
        trait.role = trait.role or role
    elif role in ("float", "int", "bool", "str", "dtype", "device", "group", "tensors"):
        trait.score(role, 1.6 * weight)
    elif role == "p":
        trait.score("float", 1.6 * weight)
        trait.usual["float"] = 0.3
    elif role == "sized":
        trait.score("tensors", 0.5 * weight)
        trait.score("ints", 0.5 * weight)
    else:
        trait.score("tensor", 1.3 * weight)
        if role in ("weight", "conv3", "conv4"):
            trait.role = role
    if role in _RANKS and trait.rank is None and weight > 0.5:
        trait.rank = _RANKS[role]
    if role in ("square", "spd", "symmetric", "tril"):
        trait.square = True
        trait.least = max(trait.least, 2)
    if role in _DRAWS:
        trait.draws.append(("tensor", _DRAWS[role]))
