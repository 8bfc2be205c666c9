//! `Session` and `read_host_bitcode` on small modules: one test program, since each links LLVM. Inputs are IR text, assembled here.

mod calls;
mod close;
mod constants;
mod damage;
mod emit;
mod files;
mod host;
mod inputs;
mod inventory;
mod merge;
mod neutral;
mod partition;
mod support;
mod undefined;
