// Loops over registers, whose count is known, are written out, so that what they hold stays in registers.

#pragma once

#ifndef UNROLL
#define UNROLL _Pragma("GCC unroll 64")
#endif
#define ROLLED _Pragma("GCC unroll 1")
