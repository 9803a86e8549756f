# The tag that C++ exceptions carry in WebAssembly: a pointer to the object thrown.
    .tagtype __cpp_exception i32
    .globl __cpp_exception
__cpp_exception:
