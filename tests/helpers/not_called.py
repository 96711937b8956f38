"""Exports that the test of guarded doors does not call, with the reason why not."""

# Reason -> lines of MODULE: NAMES
NOT_CALLED = {
    "says what is wrong": """
        errors: AclnnError AscendSimError CapacityError ConfigError DataError ProgramError ShapeError
            StoppedError UnsupportedError WorkerError
    """,
    "a record, whose numbers are those of guarded functions, or whole numbers alone": """
        aclnn.c.values: Out aclDataType aclFormat aclSysParamOpt
        aclnn.tensor: AclTensor
        numerics.accumulation.models: IntegerSum AccumulationModel products_of rounds_once MathSettings
        numerics.formats.dtypes: Control OverflowRules DType Integer dtype find name_of fraction_bits
        numerics.formats.format_rounding: require_choice require_float32 CodeTable
        numerics.metric_chunks: ChunkTotals Column Standards Verdict standards
        numerics.metrics: ErrorMetrics
        numerics.quick_casts: is_stored
        ops.many: Item
        ops.matmul: MatmulTiling
        ops.plan: Plan Tiling shares
        ops.problems.convolution: ConvProblem
        ops.problems.products: MatmulProblem
        ops.schedules.base: Schedule
        ops.schedules.dgrad.nest: Dgrad DgradTiles
        ops.schedules.matmul: Matmul
        ops.schedules.blocks: tile_rings Writeback
        ops.schedules.wgrad.nest: Wgrad
        ops.schedules.wgrad.tasks: WgradTiles
        ops.tiling.request: PlanRequest PartialPlan
        program.walk: Axis alike
        program.instruction: SlotToSlot
        program.nest: Nest
        program.places: Slot Gm GmTensor
        program.program: NestProgram ProgramBuilder
        vector.instructions: vector_cost
        profile.files: Product
        profile.records: Generation Figure
        program.kernel: Core CoreWork Kernel Phase
        report.document: Run
        rules.typed: ConvTbcBackwardCall ConvolutionBackwardCall CubeMathType TensorDescription Decision
        rules.loader: load_rules product_names rule_set_names rules_digest known_product rule_product
        rules.resolve: resolve
        studies.arithmetic.math: Attribution Judged Math as_dot as_text reduction_tree
        studies.codesign: Design DesignAnswer DesignQuestion
        studies.engine.point: Point code_version
        studies.engine.run: Budget require_answer Store require_table_name
        studies.hardware.records: Gain HardwareAnswer Question StudiedLayer
        studies.identify.records: Agreeing Identification
        studies.modes.choice: Case ModeSummary
        studies.modes.measure: Axes PrecisionPoint
        studies.modes.records: CaseErrors Share
        studies.records: FigureEffect Interval JudgedGradient
        studies.sweep: ranged_figures sweep_size
        studies.tuning.records: Beside BufferUse Course Part Started TilingAnswer TilingQuestion Trial
            Waits
        studies.tuning.tune: Tuner point_of
        torch.passes: Setting
        validate.ablation: Ablation
        validate.compare: Group Summary
        validate.coverage: Coverage comparison_line
        validate.plans.measured: MeasuredRanking
        validate.run: Ranking Validation
        validate.schema: Unusable Row
        workloads.loader: load_workload workload_names
        workloads.records: Layer Workload merged toml_text
    """,
    "moves bytes as they are, or looks at names": """
        aclnn.c.calls: aclDestroyAclOpExecutor aclSetAclOpExecutorRepeatable aclSetInputTensorAddr
            aclSetOutputTensorAddr aclSetTensorAddr aclCreateBoolArray aclCreateIntArray aclCreateTensor
            aclDestroyIntArray aclDestroyTensor
        aclnn.c.values: aclFinalize aclGetRecentErrMsg aclInit aclrtCreateStream aclrtCtxGetSysParamOpt
            aclrtCtxSetSysParamOpt aclrtDestroyStream aclrtFree aclrtMalloc aclrtMemcpy aclrtResetDevice
            aclrtSetDevice aclrtSynchronizeStream
        profile.changes: contradiction
        profile.files: is_file_name configs_directory
        studies.engine.run: write_table
        torch.network: read_network
        torch.dispatch: record
    """,
    "an instruction, or compiled code, which runs under the guard of what runs it": """
        native.function: Native
        vector.instructions: Add CopyGmToUb CopyUbToGm
    """,
    "a step of a twin, code_table, error_metrics or reference_gradients, shown nowhere": """
        numerics.accumulation.twins: add_block align block_add exact_sum exponent low_half output
            product rounded seq seq_muladd term total tree
        numerics.formats.casts: floor_log2
        numerics.formats.dtypes: positive_values value_of_code
        numerics.formats.format_rounding: field_value
        numerics.metric_chunks: chunk_totals root_mean_square round_reference
        ops.reference.call: spread merged_dgrad merged_wgrad passed_dgrad any_dgrad phased_dgrad
            ordered_product
        ops.reference.ordered: append_slices im2col ordered_dgrad reduction_by_groups reduction_of
            sources ordered_wgrad add_as_tree add_in_order add_to_zeros
        ops.reference.winograd: any_wgrad winograd_wgrad
    """,
    "takes seconds; what it computes with is looked at below": """
        precision: identify
        studies.identify.judge: identify_outputs
        validate.run: tuning_noise
    """,
}


def not_called():
    """Return the reasons by name."""
    found = {}
    for reason, text in NOT_CALLED.items():
        for word in text.split():
            if word.endswith(":"):
                module = word
            else:
                found[f"{module[:-1]}.{word}"] = reason
    return found
