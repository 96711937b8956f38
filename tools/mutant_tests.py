"""Which of the fast tests concern a file of the package."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# The fast tests that concern a file, first those that are quick to fail: a name, or a name and which of it.
FORMATS = ("test_casts", "test_hf32", "test_hifloat8", "test_formats", "test_controls", "test_metrics")
PARTS = ("test_accumulation_parts", "test_accumulation_panels", "test_accumulation_packing")
KERNELS = ("test_accumulation_edges", "test_accumulation_kernels", "test_default_arithmetic")
PLANS = ("test_vendor_plans", "test_thresholds_dgrad", "test_thresholds_wgrad", "test_thresholds_910b")
PLANS = (*PLANS, "test_product_fields", "test_vendor_fits", "test_product_tiling")
NESTS = ("test_wgrad_shares", "test_wgrad_stream", "test_dgrad_shares", "test_dgrad_split", "test_dgrad_c04")
CUBE = ("test_cube_instructions", "test_costs", "test_sliding", "test_peaks", "test_handover")
VECTOR = ("test_vector_instructions", "test_zero_insertion", "test_winograd_instructions", "test_transdata")
LAYOUTS = ("test_layouts", "test_transdata", "test_merged_layouts")
GRAPH = ("test_kernel_graph", "test_graph", "test_known_graphs", "test_lowering_notes", *LAYOUTS)
GRAPH = (*GRAPH, "test_conversions", "test_output_formats", "test_profile_generations", "test_folded_batches")
GRAPH = (*GRAPH, "test_patches", "test_turned_weights", "test_gradient_products", "test_dilation")
GRAPH = (*GRAPH, "test_operators_bias", "test_operators_views", "test_view_copies", "test_operators_parts")
GRAPH = (*GRAPH, "test_aclnn_workspace", "test_own_wgrad", "test_dgrad_split", "test_group_merge")
NOTES = (
    "test_lowering_notes",
    "test_plan_errors",
    "test_own_wgrad",
    "test_output_formats",
    "test_operators_parts",
)
RULES = ("cube_math", "documents", "eight_bit", "empty", "files", "from_cube", "limits", "messages", "order")
RULES = tuple(f"test_rules_{name}" for name in (*RULES, "page", "records", "remembered", "types"))
TESTS = {
    "numerics/formats/ulp": ("test_standards", "test_metrics"),
    "numerics/formats": (*FORMATS, "test_default_arithmetic cast or narrowing or definitions or grid"),
    "numerics/metric": ("test_metrics", "test_standards", "test_docs"),
    "numerics/standards": ("test_standards", "test_metrics", "test_formats"),
    "numerics/accumulation/models": (
        "test_accumulation_models",
        "test_model_hints",
        "test_accumulation_twins",
    ),
    "numerics/accumulation/settings": ("test_accumulation_models", "test_matmul_int8", "test_options"),
    "numerics/accumulation/integers": (
        "test_accumulation_models",
        "test_matmul_int8",
        "test_accumulation_edges",
    ),
    "numerics/accumulation/twins": ("test_accumulation_twins", *KERNELS[:2]),
    "numerics/compiled/gathered/halves": ("test_half_conversions",),
    "numerics/compiled/gathered/threads": ("test_threads", "test_gathered_products"),
    "numerics/compiled/gathered": ("test_gathered_products",),
    "numerics/compiled/kernels/align": ("test_accumulation_kernels align", *KERNELS),
    "numerics/compiled/kernels/block": ("test_accumulation_kernels block", *KERNELS),
    "numerics/compiled/block_sums": ("test_accumulation_kernels block", *KERNELS),
    "numerics/compiled/kernels/chain": ("test_accumulation_kernels seq", *KERNELS),
    "numerics/compiled/kernels/fused": ("test_accumulation_kernels seq", *KERNELS),
    "numerics/compiled/kernels/half": ("test_accumulation_kernels seq", *KERNELS),
    "numerics/compiled/kernels/tree": ("test_accumulation_kernels tree", *KERNELS),
    "numerics/accumulation": ("test_accumulation_models", "test_accumulation_twins", *KERNELS),
    "numerics/compiled": (*PARTS, *KERNELS),
    "numerics": (*FORMATS, *PARTS, *KERNELS),
    "ops/lowering/matmul_formats": ("test_matmul", "test_matmul_int8", "test_options"),
    "ops/lowering/op_types": ("test_kernel_graph", "test_patches"),
    "ops/lowering/notes": (
        *NOTES,
        "test_kernel_graph",
        "test_plan",
        "test_winograd_doors",
        "test_group_merge",
    ),
    "ops/lowering/known": ("test_known_graphs", "test_known_times"),
    "ops/lowering/layouts": (*LAYOUTS, "test_graph", "test_group_merge"),
    "ops/lowering/relayouts": (*LAYOUTS, "test_view_copies", "test_group_merge"),
    "ops/lowering/call": ("test_reference each_gradient", *GRAPH),
    "ops/lowering": GRAPH,
    "ops/tiling/vendor/first": ("test_first_plans", "test_first_generation", "test_plan"),
    "ops/tiling/vendor/library": (
        "test_library_wgrad",
        "test_library_tilings",
        "test_plan",
        "test_lowering_notes",
    ),
    "ops/tiling/vendor/matmul": ("test_matmul_plans", "test_matmul_tiling"),
    "ops/tiling/vendor/workspace": ("test_workspace_formulas",),
    "ops/tiling/request": ("test_group_merge", "test_vendor_plans", "test_merged_layouts"),
    "ops/tiling/vendor/product": (*PLANS, "test_plan_errors", "test_group_merge", *NESTS),
    "ops/tiling/vendor/operator": (*PLANS, "test_plan_errors", "test_group_merge", "test_winograd_rule"),
    "ops/tiling/vendor/names": (
        "test_plan_files",
        "test_vendor_round_trip",
        "test_turned_weights",
        "test_group_merge",
    ),
    "ops/tiling/vendor/arch35/winograd": (*PLANS, "test_winograd_rule", "test_winograd_doors"),
    "ops/tiling/vendor": (*PLANS, "test_library_wgrad", *NESTS, "test_split_segments", "test_group_merge"),
    "ops/tiling/legal": ("test_legal_tilings", "test_tuning_steps"),
    "ops/tiling/bounds": ("test_bounds",),
    "ops/tiling/complete": ("test_completion", "test_partial_plans", "test_plans_given"),
    "ops/tiling/partial": ("test_completion", "test_partial_plans", "test_plans_given"),
    "ops/tiling/given": ("test_plan_errors", "test_plans_given", "test_plans_astray"),
    "ops/tiling/plan_files": ("test_plan_files", "test_cli_plans"),
    "ops/tiling/entries": ("test_plan_entries", "test_plan_files", "test_tuned_page"),
    "ops/tiling": ("test_search_timed", "test_plan", "test_search", "test_matmul_tiling", "test_tiling"),
    "cube": (*CUBE, "test_zero_insertion", "test_dgrad_c04"),
    "vector/diagonal": ("test_diagonal", "test_group_merge", "test_merged_layouts"),
    "vector": (*VECTOR, "test_change_boxes", "test_winograd_kernel", "test_operators_bias"),
    "rules": RULES,
}


def file_of(name: str) -> str:
    """Return the path of a test file, by its name without the ending, whichever folder it is in."""
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
