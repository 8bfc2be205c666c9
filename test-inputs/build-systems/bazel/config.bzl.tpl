"""The toolchain of warplink.bzl. Words between @ are filled in for this machine."""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "ACTION_NAMES")
load(
    "@bazel_tools//tools/cpp:cc_toolchain_config_lib.bzl",
    "env_entry",
    "env_set",
    "feature",
    "flag_group",
    "flag_set",
    "tool_path",
    "with_feature_set",
)

_LINK = [
    ACTION_NAMES.cpp_link_executable,
    ACTION_NAMES.cpp_link_dynamic_library,
    ACTION_NAMES.cpp_link_nodeps_dynamic_library,
]

def _flags(actions, flags):
    return flag_set(actions = actions, flag_groups = [flag_group(flags = flags)])

def _recorded(name, variable, value, link_flag):
    """A choice that is recorded in what is compiled, and decisive for what is linked."""
    return feature(
        name = name,
        env_sets = [env_set(actions = [ACTION_NAMES.cpp_compile], env_entries = [env_entry(key = variable, value = value)])],
        flag_sets = [_flags(_LINK, ["-Wl," + link_flag])],
    )

def _impl(ctx):
    # clang tells CUDA sources by their suffix; what other sources do not use is no reason for a warning.
    cuda = ["-B@bin_dir@", "--cuda-path=@cuda@", "-fgpu-rdc", "-foffload-lto"]
    cuda += ["--offload-arch=" + arch for arch in "@archs@".split(",")]
    warplink = feature(
        name = "warplink",
        enabled = True,
        flag_sets = [
            _flags([ACTION_NAMES.cpp_compile], ["--start-no-unused-arguments"] + cuda + @cuda_flags@ + ["--end-no-unused-arguments"]),
            _flags(_LINK, ["-B@bin_dir@", "--cuda-path=@cuda@", "--offload-link"]),
        ],
        env_sets = [env_set(
            actions = [ACTION_NAMES.cpp_compile],
            env_entries = [env_entry(key = "WARPLINK_PTX", value = "@ptx@")],
            with_features = [with_feature_set(not_features = ["warplink_ptx_all", "warplink_ptx_none"])],
        )],
    )
    # The last feature: libraries stand before the runtime that they use.
    runtime = feature(
        name = "cudart",
        enabled = True,
        flag_sets = [_flags(_LINK, ["-Wl,--push-state,--as-needed"] + @cudart@ + ["-lstdc++", "-lm", "-ldl", "-lpthread", "-lrt", "-Wl,--pop-state"])],
    )
    return cc_common.create_cc_toolchain_config_info(
        ctx = ctx,
        toolchain_identifier = "warplink",
        host_system_name = "local",
        target_system_name = "local",
        target_cpu = "k8",
        target_libc = "unknown",
        compiler = "clang",
        abi_version = "unknown",
        abi_libc_version = "unknown",
        tool_paths = [tool_path(name = name, path = path) for name, path in @tools@.items()],
        cxx_builtin_include_directories = @header_dirs@,
        features = [
            warplink,
            _recorded("warplink_ptx_all", "WARPLINK_PTX", "all", "--warplink-ptx=all"),
            _recorded("warplink_ptx_none", "WARPLINK_PTX", "none", "--warplink-ptx=none"),
            _recorded("warplink_no_launch_guard", "WARPLINK_LAUNCH_GUARD", "off", "--warplink-no-launch-guard"),
            feature(name = "supports_pic", enabled = True),
            runtime,
        ],
    )

warplink_toolchain_config = rule(implementation = _impl, attrs = {}, provides = [CcToolchainConfigInfo])
