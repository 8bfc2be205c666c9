"""A C++ toolchain of clang that compiles CUDA sources (*.cu) for device LTO and links through warplink.

In WORKSPACE:

    load("//:warplink.bzl", "warplink_toolchain")
    warplink_toolchain(name = "warplink", archs = ["sm_80", "sm_90"], ptx = "sm_90")
    register_toolchains("@warplink//:toolchain")

From the environment of Bazel: WARPLINK (warplink on PATH), CLANG (clang++ on PATH), CUDA_PATH (/usr/local/cuda), CUDART (linker
arguments for the CUDA runtime), CUDAFLAGS (more compiler arguments for CUDA sources).

Targets and packages choose about PTX with features = ["warplink_ptx_all"] or ["warplink_ptx_none"], and against the launch guard with
features = ["warplink_no_launch_guard"].
"""

_VARIABLES = ["WARPLINK", "CLANG", "CUDA_PATH", "CUDART", "CUDAFLAGS"]

def _program(ctx, variable, name):
    path = ctx.os.environ.get(variable) or ctx.which(name)
    if not path:
        fail("no %s on PATH, and %s names none" % (name, variable))
    return str(path)

def _output(ctx, command):
    result = ctx.execute(command)
    if result.return_code != 0:
        fail("%s failed: %s" % (" ".join(command), result.stderr))
    return result

def _header_dirs(ctx, clang):
    """The directories that clang takes system headers from: Bazel accepts no others from outside of the workspace."""
    text = _output(ctx, [clang, "-E", "-x", "c++", "/dev/null", "-v"]).stderr
    after = text.partition("#include <...> search starts here:")[2].partition("End of search list.")[0]
    return [str(ctx.path(line.strip()).realpath) for line in after.splitlines() if line.strip()]

def _warplink_toolchain_impl(ctx):
    warplink = _program(ctx, "WARPLINK", "warplink")
    clang = _program(ctx, "CLANG", "clang++")
    cuda = ctx.os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    if not ctx.path(cuda + "/bin/ptxas").exists:
        fail("%s holds no CUDA toolkit; name one with CUDA_PATH" % cuda)
    cudart = ctx.os.environ.get("CUDART") or "-L%s/lib64 -lcudart_static" % cuda
    cuda_headers = [cuda + "/include", str(ctx.path(cuda + "/include").realpath)]
    tools = {}
    for tool in ["ar", "cpp", "gcov", "ld", "nm", "objdump", "strip"]:
        tools[tool] = str(ctx.which(tool) or "/bin/false")
    tools["gcc"] = clang
    ctx.file("BUILD.bazel", """
load(":config.bzl", "warplink_toolchain_config")

package(default_visibility = ["//visibility:public"])

filegroup(name = "empty")

warplink_toolchain_config(name = "config")

cc_toolchain(
    name = "clang",
    all_files = ":empty",
    compiler_files = ":empty",
    dwp_files = ":empty",
    linker_files = ":empty",
    objcopy_files = ":empty",
    strip_files = ":empty",
    toolchain_config = ":config",
)

toolchain(
    name = "toolchain",
    toolchain = ":clang",
    toolchain_type = "@bazel_tools//tools/cpp:toolchain_type",
)
""")
    ctx.template("config.bzl", ctx.attr._config, {
        "@tools@": repr(tools),
        "@bin_dir@": _output(ctx, [warplink, "bin-dir"]).stdout.strip(),
        "@cuda@": cuda,
        "@cudart@": repr(cudart.split(" ")),
        "@cuda_flags@": repr([flag for flag in (ctx.os.environ.get("CUDAFLAGS") or "").split(" ") if flag]),
        "@archs@": ",".join(ctx.attr.archs),
        "@ptx@": ctx.attr.ptx,
        "@header_dirs@": repr(_header_dirs(ctx, clang) + cuda_headers),
    })

warplink_toolchain = repository_rule(
    implementation = _warplink_toolchain_impl,
    attrs = {
        "archs": attr.string_list(mandatory = True, doc = "Architectures to make cubins for"),
        "ptx": attr.string(default = "none", doc = "all, none, or the architectures to embed PTX for, with commas"),
        "_config": attr.label(default = "//:config.bzl.tpl"),
    },
    environ = _VARIABLES + ["PATH"],
    local = True,
)
