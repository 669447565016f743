"""How Numba makes machine code of compiled functions: of entries alone, with all that they call.

By default Numba optimises each function, and makes machine code of it, with all functions that it calls
inside; then its callers do so again. Functions that only compiled functions call need neither: they are
kept in LLVM's intermediate form, until an entry is optimised that has them inside. Compilation then takes
about half of the time, and the code is as fast.

The classes extend parts of Numba that it does not document, which
`tests/sim/compiled/test_numba_libraries.py` compares with the release that is installed.

The file can go when, without it, the first use of ClusterGym/Elastic-16 with an empty cache takes at most
30 s of the processor.
"""

from __future__ import annotations

from typing import Any

from numba.core import caching, codegen, compiler
from numba.core.runtime import rtsys

_environments: dict[str, Any] = {}
"""By the name of its global variable: what machine code reads of a function's, as to raise errors."""


class CodeCache(caching.FunctionCache):  # type: ignore[misc]
    """Numba's cache of a function, which loads machine code without what only compilation needs.

    Numba first makes its types and functions known, which takes longer than the loading. Its compiler does so
    itself.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return what is kept of a function for some types of arguments; None if nothing is."""
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)


class _NotesEnvironments:
    """Numba's code generator for parts, which have no machine code to write an environment's address into."""

    def __init__(self, generator: Any) -> None:
        self._generator = generator

    def __getattr__(self, name: str) -> Any:
        return getattr(self._generator, name)

    def set_env(self, name: str, environment: Any) -> None:
        _environments[name] = environment


class PartLibrary(codegen.JITCodeLibrary):  # type: ignore[misc]
    """A function that is linked into its callers, and has no machine code of its own."""

    @property
    def codegen(self) -> Any:
        """The code generator."""
        return _NotesEnvironments(self._codegen)

    def get_pointer_to_function(self, name: str) -> int:
        """Return 0: Python cannot call the function."""
        self._ensure_finalized()
        return 0

    def serialize_using_object_code(self) -> tuple[str, str, bytes]:
        """Return what Numba's cache keeps."""
        self._ensure_finalized()
        return self.name, "bitcode", self._get_module_for_linking().as_bitcode()

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


class EntryLibrary(codegen.JITCodeLibrary):  # type: ignore[misc]
    """A function that Python calls, and its parts; these get their environments as soon as there is code."""

    def finalize(self) -> None:
        """Make machine code of the function with its parts."""
        super().finalize()
        for variable in self._final_module.global_variables:
            if variable.name in _environments:
                self._codegen.set_env(variable.name, _environments[variable.name])


class EntryCompiler(compiler.Compiler):  # type: ignore[misc]
    """Numba's compiler, which makes an `EntryLibrary`."""

    library_class: type[codegen.JITCodeLibrary] = EntryLibrary

    def __init__(
        self,
        typingctx: Any,
        targetctx: Any,
        library: Any,
        args: Any,
        return_type: Any,
        flags: Any,
        locals: Any,
    ) -> None:
        if library is None:
            library = self.library_class(targetctx.codegen(), "clustergym")
            # Before it is filled, else it cannot be cached.
            library.enable_object_caching()
        super().__init__(typingctx, targetctx, library, args, return_type, flags, locals)


class PartCompiler(EntryCompiler):
    """Numba's compiler, which makes a `PartLibrary`."""

    library_class = PartLibrary
