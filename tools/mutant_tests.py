"""Which of the fast tests concern a file of the package."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# The fast tests that concern a file, first those that are quick to fail: a name, a name and which of it, or a
# folder with all that it holds.
FORMATS = ("test_casts", "test_formats", "test_metrics")
PARTS = ("test_accumulation_parts", "test_accumulation_panels")
KERNELS = ("test_accumulation_edges", "test_accumulation_kernels", "test_default_arithmetic")
PLANS = ("test_vendor_plans", "test_thresholds_dgrad", "test_thresholds_wgrad", "test_blocks_910b")
PLANS = (*PLANS, "test_product_tiling", "test_vendor_records")
NESTS = ("test_shares", "test_wgrad_stream", "test_dgrad_split", "test_dgrad_taps")
CUBE = ("test_cube_instructions", "test_costs", "test_layouts", "test_peaks", "test_handover")
VECTOR = ("test_vector_instructions", "test_dilation", "test_transdata")
LAYOUTS = ("test_layouts", "test_transdata", "test_merged_layouts")
GRAPH = ("test_kernel_graph", "test_graph", *LAYOUTS)
GRAPH = (*GRAPH, "test_conversions", "test_operators_dtypes", "test_profile", "test_gradient_products")
GRAPH = (*GRAPH, "test_patches", "test_vector_kernels", "test_gradient_products", "test_dilation")
GRAPH = (*GRAPH, "test_operators_sums", "test_operators_views", "test_view_copies")
GRAPH = (*GRAPH, "test_aclnn_workspace", "test_own_wgrad", "test_dgrad_split", "test_group_merge")
RULES = ("cube", "documents", "files", "limits", "messages", "order")
RULES = (*(f"test_rules_{name}" for name in RULES), "test_page_words")
BYTES = "test_study_traffic counts or counted"  # those that every instruction moves, one by one
HARDWARE = ("test_study_monotone", "test_study_hardware_words", "test_study_codesign", "test_study_hardware")
MODES = ("test_study_precision", "test_modes", "test_losses")
TESTS = {
    "numerics/casts": (*FORMATS, "test_default_arithmetic cast or narrowing or definitions or grid"),
    "numerics/metric": ("test_metrics", "test_page_words"),
    "numerics/accumulation_twins": ("test_accumulation_models", *KERNELS[:2]),
    "numerics/accumulation": ("test_accumulation_models", *KERNELS),
    "numerics/compiled/turned": ("test_conversions", "test_gathered_products"),
    "numerics/factor": ("test_gathered_products",),
    "numerics/compiled/gathered": ("test_gathered_products",),
    "numerics/compiled/align_kernels": ("test_accumulation_kernels align", *KERNELS),
    "numerics/compiled/block_kernels": ("test_accumulation_kernels block", *KERNELS),
    "numerics/compiled/block_sums": ("test_accumulation_kernels block", *KERNELS),
    "numerics/compiled": (*PARTS, *KERNELS),
    "numerics": (*FORMATS, *PARTS, *KERNELS),
    "ops/running": ("test_graph", "test_sequences"),
    "ops/lowering/layouts": (*LAYOUTS, "test_graph", "test_group_merge"),
    "ops/lowering/call": ("test_reference each_gradient", *GRAPH),
    "ops/lowering/notes": ("test_first_generation whose", *GRAPH, "test_plan_errors"),
    "ops/lowering": GRAPH,
    "ops/tiling/vendor/first": ("test_first_plans", "test_first_generation", "test_plan_errors"),
    "ops/tiling/vendor/arch22/library": (
        "test_library_wgrad",
        "test_library_tilings",
        "test_plan_errors",
        "test_kernel_graph",
    ),
    "ops/tiling/vendor/matmul": ("test_matmul_plans", "test_matmul_cycles"),
    "ops/tiling/request": ("test_group_merge", "test_vendor_plans", "test_merged_layouts"),
    "ops/tiling/vendor/operators": (*PLANS, "test_plan_errors", "test_group_merge", *NESTS),
    "ops/tiling/vendor/nest_plans": (*PLANS, "test_plan_errors", "test_group_merge", *NESTS),
    "ops/tiling/vendor/workspace": ("test_aclnn_workspace",),
    "ops/tiling/vendor/names": (
        "test_plan_files",
        "test_plan_entries",
        "test_vector_kernels",
        "test_group_merge",
    ),
    "ops/tiling/vendor": (*PLANS, "test_library_wgrad", *NESTS, "test_dgrad_split", "test_group_merge"),
    "ops/tiling/legal": ("test_legal_tilings", "test_timing_layers"),
    "ops/tiling/given": ("test_plan_errors", "test_partial_plans", "test_plans_given"),
    "ops/tiling/plan_files": ("test_plan_files", "test_cli_plans"),
    "ops/tiling/entries": ("test_plan_entries", "test_plan_files"),
    "ops/tiling": ("test_search", "test_plan_errors", "test_matmul_cycles", "test_tiling"),
    "instructions/cube": (*CUBE, "test_dilation", "test_dgrad_taps", BYTES),
    "instructions/movers": (*CUBE, "test_dilation", "test_dgrad_taps", BYTES),
    "instructions/fixpipe": (*CUBE, "test_pickles", BYTES),
    "instructions/relayout": (*LAYOUTS, *VECTOR, "test_winograd_kernel", BYTES),
    "instructions/flags": ("test_flags", "test_costs"),
    "instructions": (
        *VECTOR,
        "test_vector_kernels",
        "test_winograd_kernel",
        "test_operators_sums",
        "test_study_traffic",
    ),
    "rules": RULES,
    "program/instruction": ("test_vector_kernels", "test_costs", "program/"),
    "program/places": ("program/", "test_cube_instructions", "test_accumulation_order"),
    "program/program": ("program/", "test_timing", BYTES),
    "program": ("program/",),
    "timing/links": ("test_links", "timing/"),
    "timing/l2": ("test_l2", "test_l2_cores", "test_l2_operands", "test_l2_walk", "timing/"),
    "timing": ("timing/",),
    "ops/schedules/vector/channel_sums": ("test_operators_sums",),
    "ops/schedules/vector": (*VECTOR, "test_vector_kernels", "schedules/"),
    "ops/schedules/matmul": ("test_matmul_cycles", "test_matmul", "schedules/"),
    "ops/schedules/winograd": ("test_winograd", "test_winograd_kernel"),
    "ops/schedules": ("schedules/", "test_own_wgrad"),
    "profile/changes": ("profile/", "test_study_hardware file", "test_other_cubes change"),
    "profile/records": ("profile/", "test_study_codesign formula", "test_interval"),
    "profile/memory": (
        "test_costs",
        "test_cube_instructions",
        "test_layouts",
        "profile/",
        "test_other_cubes",
    ),
    "profile/voltage": ("test_study_traffic voltage or energy or clock",),
    "profile/check": ("profile/", "test_study_traffic voltage or clock"),
    "profile": ("profile/",),
    "studies/identify/vectors": ("test_identify probe or sums", "test_identify"),
    "studies/identify": ("test_profile_figures", "test_identify", "precision/"),
    "studies/modes": ("test_study_formats", *MODES),
    "studies/arithmetic": ("test_accumulation_order", "test_study_formats", "test_precision", *MODES),
    "studies/tuning/records": ("test_guarded_doors property", "test_study_tiling", "test_study_winners"),
    "studies/devices": ("test_study_devices",),
    "studies/table": (
        "test_study_traffic digits",
        "test_files parquet",
        "test_study_precision",
        "test_study_hardware_words",
        "test_study_several table",
    ),
    "studies/levers": ("test_study_traffic",),
    "studies/accounts": ("test_study_traffic", "test_study_codesign"),
    "studies/codesign": ("test_study_codesign",),
    "studies/hardware/figures": ("test_faster_figures direction", "test_study_hardware"),
    "studies/hardware": (*HARDWARE, "test_study_several hardware"),
    "studies/records": ("test_ratios", "test_interval", "test_study_engine", "test_study_courses"),
    "studies/tuning/search": ("test_tuning_steps", "test_study_tiling", "test_study_winners"),
    "studies/tuning/study": ("test_study_courses", "test_study_tiling", "test_study_worth"),
    "studies/verdicts": ("test_ratios", "test_study_hardware_words", "test_study_worth"),
    "studies/uncertainty": ("test_ratios", "test_interval"),
    "studies/sweep": ("test_ratios", "test_interval", "test_precision"),
    "studies/tuning": ("test_tuning_steps", "test_study_tiling", "test_study_winners", "test_study_worth"),
    "studies/engine": ("test_study_engine", "test_study_several", "test_study_tiling"),
    "studies": ("studies/",),
}


def file_of(name: str) -> str:
    """Return the path of a test file, by its name without the ending, or of a folder, which ends in `/`."""
    if name.endswith("/"):
        return f"tests/{name}"
    [path] = (ROOT / "tests").glob(f"*/{name}.py")
    return str(path.relative_to(ROOT))


def tests_of(file: str) -> list[list[str]]:
    """Return the runs of pytest that concern a file, as its arguments."""
    names = next(tests for part, tests in TESTS.items() if file.startswith(part))
    runs: list[list[str]] = []
    for name, _, pick in (name.partition(" ") for name in names):
        if pick:
            runs.append(["-k", pick, file_of(name)])
        elif runs and "-k" not in runs[-1]:
            runs[-1].append(file_of(name))
        else:
            runs.append([file_of(name)])
    return runs
