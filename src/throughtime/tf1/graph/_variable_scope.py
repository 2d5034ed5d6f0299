"""`get_variable` and `variable_scope`: variables by name, made once and shared on request."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from throughtime.tf1._namespace import export, exported, lookup
from throughtime.tf1.graph._collections import GraphKeys
from throughtime.tf1.graph._dtypes import DType, as_dtype, float32
from throughtime.tf1.graph._graph import get_default_graph
from throughtime.tf1.graph._operation import Tensor
from throughtime.tf1.graph._scopes import name_scope, outside_of_functions
from throughtime.tf1.graph._shapes import TensorShape, as_shape
from throughtime.tf1.graph._user_line import describe_line
from throughtime.tf1.graph._variables import Variable


class _AutoReuse:
    """The value of `tf.AUTO_REUSE`: share a variable if there is one, else make it."""

    def __repr__(self) -> str:
        return "<_ReuseMode.AUTO_REUSE: 1>"


AUTO_REUSE = _AutoReuse()
export("AUTO_REUSE", AUTO_REUSE)


class VariableStore:
    """The variables of a graph by name, and how often each scope was opened."""

    def __init__(self) -> None:
        self.variables: dict[str, Variable] = {}
        self.scope = VariableScope(False)
        self.counts: dict[str, int] = {}

    def open_scope(self, name: str) -> None:
        """Count an opening."""
        self.counts[name] = self.counts.get(name, 0) + 1

    def close_subscopes(self, name: str) -> None:
        """Forget how often scopes inside of `name` were opened."""
        for key in self.counts:
            if not name or key.startswith(f"{name}/"):
                self.counts[key] = 0

    def unique_scope(self, prefix: str) -> str:
        """`prefix`, or `prefix_1` … if it was opened in the current scope before."""
        inside = f"{self.scope.name}/{prefix}" if self.scope.name else prefix
        if not self.counts.get(inside, 0):
            return prefix
        number = 1
        while self.counts.get(f"{inside}_{number}", 0):
            number += 1
        return f"{prefix}_{number}"


def variable_store() -> VariableStore:
    """The store of the default graph; functions share that of the graph around them."""
    root = get_default_graph().root()
    if root.variable_store is None:
        root.variable_store = VariableStore()
    store: VariableStore = root.variable_store
    return store


_INHERITED = ("initializer", "regularizer", "caching_device", "partitioner", "constraint")


class VariableScope:
    """Defaults for `get_variable` inside of a scope."""

    def __init__(
        self,
        reuse: Any,
        name: str = "",
        initializer: Any = None,
        regularizer: Any = None,
        caching_device: Any = None,
        partitioner: Any = None,
        custom_getter: Any = None,
        name_scope: str = "",
        dtype: Any = float32,
        use_resource: Any = None,
        constraint: Any = None,
    ):
        self._reuse = reuse
        self._name = name
        self.initializer = initializer
        self.regularizer = regularizer
        self.caching_device = caching_device
        self.partitioner = partitioner
        self.custom_getter = custom_getter
        self.constraint = constraint
        self.dtype = as_dtype(dtype)
        self.use_resource = use_resource
        self._name_scope = name_scope

    @property
    def name(self) -> str:
        """The prefix of variable names."""
        return self._name

    @property
    def original_name_scope(self) -> str:
        """The name scope that was opened with this scope."""
        return self._name_scope

    @property
    def reuse(self) -> Any:
        """True, False or `tf.AUTO_REUSE`."""
        return self._reuse

    def reuse_variables(self) -> None:
        """From here on, `get_variable` shares variables and makes none."""
        self._reuse = True

    def set_initializer(self, initializer: Any) -> None:
        """Set the default initialiser."""
        self.initializer = initializer

    def set_regularizer(self, regularizer: Any) -> None:
        """Set the default regulariser."""
        self.regularizer = regularizer

    def set_dtype(self, dtype: Any) -> None:
        """Set the default dtype."""
        self.dtype = as_dtype(dtype)

    def set_use_resource(self, use_resource: bool) -> None:
        """Accepted."""
        self.use_resource = use_resource

    def set_custom_getter(self, custom_getter: Any) -> None:
        """Set the default getter."""
        self.custom_getter = custom_getter

    def set_caching_device(self, caching_device: Any) -> None:
        """Accepted."""
        self.caching_device = caching_device

    def set_partitioner(self, partitioner: Any) -> None:
        """Accepted."""
        self.partitioner = partitioner

    def get_collection(self, name: str) -> list[Any]:
        """The items of a collection with names in this scope."""
        return get_default_graph().get_collection(name, f"{self._name}/" if self._name else "")

    def trainable_variables(self) -> list[Variable]:
        """Variables of this scope that optimisers change."""
        return self.get_collection(GraphKeys.TRAINABLE_VARIABLES)

    def global_variables(self) -> list[Variable]:
        """Variables of this scope."""
        return self.get_collection(GraphKeys.GLOBAL_VARIABLES)

    def local_variables(self) -> list[Variable]:
        """Local variables of this scope."""
        return self.get_collection(GraphKeys.LOCAL_VARIABLES)

    def get_variable(self, store: VariableStore, name: str, **options: Any) -> Variable:
        """The variable `name` of this scope, with this scope's defaults."""
        full = f"{self._name}/{name}" if self._name else name
        for key in _INHERITED:
            if options.get(key) is None:
                options[key] = getattr(self, key)
        options["reuse"] = self._reuse if options.get("reuse") is None else options["reuse"]
        options["dtype"] = self.dtype if options.get("dtype") is None else options["dtype"]
        getter = options.pop("custom_getter", None) or self.custom_getter
        # A variable's name does not depend on the name scopes around it.
        with name_scope(None):
            if getter is None:
                return _get_or_make(store, full, **options)
            make = functools.partial(_get_or_make, store)
            found: Variable = getter(getter=make, name=full, **options)
            return found


export("VariableScope", VariableScope)


def _get_or_make(
    store: VariableStore,
    name: str,
    shape: Any = None,
    dtype: Any = float32,
    initializer: Any = None,
    regularizer: Any = None,
    reuse: Any = None,
    trainable: bool | None = None,
    collections: Any = None,
    validate_shape: bool = True,
    constraint: Any = None,
    **_: Any,
) -> Variable:
    found = store.variables.get(name)
    if found is not None:
        return _shared(found, shape, as_dtype(dtype), reuse)
    if reuse is True:
        raise ValueError(
            f"Variable {name} does not exist, or was not created with tf.get_variable(). "
            "Did you mean to set reuse=tf.AUTO_REUSE in VarScope?"
        )
    initial, value_dtype = _initial_value(name, shape, as_dtype(dtype), initializer, validate_shape)
    variable = Variable(
        initial,
        trainable=trainable,
        collections=collections,
        validate_shape=validate_shape,
        name=name,
        dtype=value_dtype,
        constraint=constraint,
    )
    store.variables[name] = variable
    _regularize(variable, name, regularizer)
    return variable


def _shared(found: Variable, shape: Any, dtype: DType, reuse: Any) -> Variable:
    name = found.op.name
    if not reuse:
        raise ValueError(
            f"Variable {name} already exists, disallowed. Did you mean to set reuse=True or reuse=tf.AUTO_REUSE in "
            f"VarScope?{describe_line(found.op.line)}"
        )
    if shape is not None and not as_shape(shape).is_compatible_with(found.shape):
        raise ValueError(
            f"Trying to share variable {name}, but specified shape {as_shape(shape)} and found shape {found.shape}."
        )
    if not dtype.is_compatible_with(found.dtype):
        raise ValueError(
            f"Trying to share variable {name}, but specified dtype {dtype.name} "
            f"and found dtype {found.dtype.base_dtype.name}."
        )
    return found


def _initial_value(
    name: str, shape: Any, dtype: DType, initializer: Any, validate_shape: bool
) -> tuple[Any, DType | None]:
    """What a new variable begins with: a value, or a function that makes one in the variable's scope."""
    dtype = dtype.base_dtype
    if initializer is None:
        initializer = default_initializer(name, dtype)
    elif not callable(initializer):
        if shape is not None:
            raise ValueError("If initializer is a constant, do not specify shape.")
        is_tensor = isinstance(initializer, Tensor | Variable)
        return initializer, None if is_tensor else dtype
    if inspect.isclass(initializer):
        initializer = initializer()
    sizes = as_shape(shape)
    if not sizes.is_fully_defined() and validate_shape and not _takes_no_shape(initializer):
        raise ValueError(f"Shape of a new variable ({name}) must be fully defined, but instead was {sizes}.")
    return _made(initializer, sizes, dtype), dtype


def _takes_no_shape(initializer: Callable[..., Any]) -> bool:
    try:
        required = [
            one
            for one in inspect.signature(initializer).parameters.values()
            if one.default is inspect.Parameter.empty and one.kind is not inspect.Parameter.VAR_KEYWORD
        ]
    except (TypeError, ValueError):
        return False
    return not required


def _made(initializer: Callable[..., Any], shape: TensorShape, dtype: DType) -> Callable[[], Any]:
    if _takes_no_shape(initializer):
        return initializer
    keywords: dict[str, Any] = {"dtype": dtype}
    with contextlib.suppress(TypeError, ValueError):
        parameters = inspect.signature(initializer).parameters
        if "partition_info" in parameters:
            keywords["partition_info"] = None
    return lambda: initializer(shape.as_list(), **keywords)


def default_initializer(name: str, dtype: DType) -> Any:
    """What TensorFlow takes where no initialiser is given."""
    if dtype.is_floating:
        return lookup("glorot_uniform_initializer")()
    if dtype.is_integer or dtype.is_bool:
        return lookup("zeros_initializer")()
    raise ValueError(f"An initializer for variable {name} of {dtype.name} is required")


def _regularize(variable: Variable, name: str, regularizer: Any) -> None:
    if regularizer is None:
        return
    with outside_of_functions(), name_scope(f"{name}/Regularizer/"):
        loss = regularizer(variable)
    if loss is not None:
        get_default_graph().add_to_collection(GraphKeys.REGULARIZATION_LOSSES, loss)


@exported("get_variable_scope")
def get_variable_scope() -> VariableScope:
    """The open variable scope."""
    return variable_store().scope


@exported("get_variable")
def get_variable(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool | None = None,
    collections: Any = None,
    caching_device: Any = None,
    partitioner: Any = None,
    validate_shape: bool = True,
    use_resource: bool | None = None,
    custom_getter: Any = None,
    constraint: Any = None,
    synchronization: Any = None,
    aggregation: Any = None,
) -> Variable:
    """The variable `name` of the open scope: made, or shared if the scope says so."""
    store = variable_store()
    return store.scope.get_variable(
        store,
        name,
        shape=shape,
        dtype=dtype,
        initializer=initializer,
        regularizer=regularizer,
        trainable=trainable,
        collections=collections,
        caching_device=caching_device,
        partitioner=partitioner,
        validate_shape=validate_shape,
        use_resource=use_resource,
        custom_getter=custom_getter,
        constraint=constraint,
        synchronization=synchronization,
        aggregation=aggregation,
    )


@exported("get_local_variable")
def get_local_variable(name: str, *args: Any, **kwargs: Any) -> Variable:
    """`get_variable` of a variable that is neither saved nor trained."""
    collections = kwargs.pop("collections", None) or []
    kwargs["collections"] = [*collections, GraphKeys.LOCAL_VARIABLES]
    kwargs["trainable"] = False
    return get_variable(name, *args, **kwargs)


@exported("no_regularizer")
def no_regularizer(_: Any) -> None:
    """Use this to keep a scope's regulariser from a variable."""
    return


@exported("variable_scope")
class variable_scope:  # noqa: N801
    """Open a scope of variables (and of names): `with tf.variable_scope("encoder", reuse=tf.AUTO_REUSE):`."""

    def __init__(
        self,
        name_or_scope: Any,
        default_name: str | None = None,
        values: Any = None,
        initializer: Any = None,
        regularizer: Any = None,
        caching_device: Any = None,
        partitioner: Any = None,
        custom_getter: Any = None,
        reuse: Any = None,
        dtype: Any = None,
        use_resource: Any = None,
        constraint: Any = None,
        auxiliary_name_scope: bool = True,
    ):
        del values
        if default_name is None and name_or_scope is None:
            raise TypeError("If default_name is None then name_or_scope is required")
        self._name_or_scope = name_or_scope
        self._default_name = default_name
        # Entering a scope with `reuse=False` inherits, as TensorFlow does.
        self._reuse = None if reuse is False else reuse
        self._dtype = dtype
        self._custom_getter = custom_getter
        self._auxiliary_name_scope = auxiliary_name_scope
        self._options = {
            "initializer": initializer,
            "regularizer": regularizer,
            "caching_device": caching_device,
            "partitioner": partitioner,
            "constraint": constraint,
            "use_resource": use_resource,
        }

    def __enter__(self) -> VariableScope:
        self._context = self._opened()
        return self._context.__enter__()

    def __exit__(self, *error: Any) -> bool | None:  # noqa: PYI036
        return self._context.__exit__(*error)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[VariableScope]:
        store = variable_store()
        target = self._name_or_scope
        if not (target is None or isinstance(target, str | VariableScope)):
            raise TypeError(f"VariableScope: name_or_scope must be a string or VariableScope, got {target!r}")
        if target is None:
            if self._reuse:
                raise ValueError("reuse=True cannot be used without a name_or_scope")
            target = store.unique_scope(str(self._default_name))
        with self._name_scope(target) as names:
            scope = self._new_scope(store, target, names)
            with _entered(store, scope, isinstance(target, VariableScope)):
                yield scope

    def _name_scope(self, target: Any) -> contextlib.AbstractContextManager[str]:
        if not self._auxiliary_name_scope:
            return contextlib.nullcontext(f"{get_default_graph().get_name_scope()}/")
        name = target if isinstance(target, str) else target.name.split("/")[-1]
        # The root scope opens no name scope.
        return get_default_graph().name_scope(name) if name else contextlib.nullcontext("")

    def _new_scope(self, store: VariableStore, target: Any, names: str) -> VariableScope:
        old = store.scope
        base = target if isinstance(target, VariableScope) else old
        if isinstance(target, VariableScope):
            name, names = target.name, target.original_name_scope
        else:
            name = f"{old.name}/{target}" if old.name else target
        scope = VariableScope(self._reuse or base.reuse, name, name_scope=names, dtype=self._dtype or base.dtype)
        for key, value in self._options.items():
            setattr(scope, key, getattr(base, key) if value is None else value)
        scope.custom_getter = _chained(self._custom_getter, base.custom_getter)
        return scope


def _chained(inner: Any, outer: Any) -> Any:
    """A getter that calls the outer scope's getter as the function it wraps."""
    if inner is None or outer is None:
        return inner or outer

    def both(getter: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return inner(functools.partial(outer, getter), *args, **kwargs)

    return both


@contextlib.contextmanager
def _entered(store: VariableStore, scope: VariableScope, by_object: bool) -> Iterator[None]:
    old, counts = store.scope, dict(store.counts)
    store.open_scope(scope.name)
    store.scope = scope
    try:
        yield
    finally:
        store.close_subscopes(scope.name)
        if by_object:
            store.counts = counts
        store.scope = old


@exported("variable_op_scope")
def variable_op_scope(
    values: Any, name_or_scope: Any, default_name: str | None = None, **options: Any
) -> variable_scope:
    """`variable_scope` with the arguments of TensorFlow 0.x."""
    return variable_scope(name_or_scope, default_name, values, **options)
