"""Exports that the test of guarded doors does not call, with the reason why not."""

# Reason -> lines of MODULE: NAMES
NOT_CALLED = {
    "says what is wrong": """
        errors: AclnnError AscendSimError CapacityError ConfigError DataError ProgramError ShapeError
            StoppedError UnsupportedError WorkerError
    """,
    "a record, whose numbers are those of guarded functions, or whole numbers alone": """
        aclnn.c.context: Out
        aclnn.c.values: aclDataType aclFormat aclSysParamOpt
        aclnn.tensor: AclTensor
        numerics.accumulation.integers: IntegerSum
        numerics.accumulation.models: AccumulationModel
        numerics.accumulation.reduction: products_of rounds_once
        numerics.accumulation.settings: MathSettings
        numerics.formats.controls: Control OverflowRules
        numerics.formats.dtypes: DType Integer dtype find name_of
        numerics.formats.format_rounding: require_choice require_float32
        numerics.formats.hifloat8_codes: fraction_bits
        numerics.formats.tables: CodeTable
        numerics.metric_chunks: ChunkTotals
        numerics.metric_columns: Column
        numerics.metrics: ErrorMetrics
        numerics.quick_casts: is_stored
        numerics.standards: Standards Verdict standards
        ops.many: Item
        ops.matmul_tiling: MatmulTiling
        ops.plan: Plan Tiling shares
        ops.problems.convolution: ConvProblem
        ops.problems.matmul: MatmulProblem
        ops.schedules.base: Schedule
        ops.schedules.dgrad.schedule: Dgrad
        ops.schedules.dgrad.nest: DgradTiles
        ops.schedules.matmul: Matmul
        ops.schedules.tiles: tile_rings
        ops.schedules.wgrad.schedule: Wgrad
        ops.schedules.wgrad.tiles: WgradTiles
        ops.schedules.writeback: Writeback
        ops.tiling.request: PlanRequest
        program.indices: Axis alike
        program.instruction: SlotToSlot
        program.nest: Nest
        program.places: Slot
        program.program: NestProgram ProgramBuilder
        vector.instructions: vector_cost
        ops.tiling.partial: PartialPlan
        profile.files: Product
        profile.generation: Generation
        profile.records: Figure
        program.kernel: Core CoreWork Kernel Phase
        program.places: Gm GmTensor
        report.document: Run
        rules.calls: ConvTbcBackwardCall ConvolutionBackwardCall CubeMathType TensorDescription
        rules.decision: Decision
        rules.loader: load_rules product_names rule_set_names rules_digest
        rules.products: known_product rule_product
        rules.resolve: resolve
        studies.arithmetic.errors: Attribution Judged
        studies.arithmetic.math: Math
        studies.arithmetic.trees: as_dot as_text reduction_tree
        studies.codesign.records: Design DesignAnswer DesignQuestion
        studies.engine.point: Point code_version
        studies.engine.run: Budget require_answer
        studies.engine.store: Store
        studies.engine.table: require_table_name
        studies.hardware.records: Gain HardwareAnswer Question StudiedLayer
        studies.identify.records: Agreeing Identification
        studies.modes.cases: Case
        studies.modes.choice: ModeSummary
        studies.modes.measure: Axes
        studies.modes.point: PrecisionPoint
        studies.modes.records: CaseErrors Share
        studies.records: FigureEffect Interval JudgedGradient
        studies.sweep: ranged_figures sweep_size
        studies.tuning.records: Beside BufferUse Course Part Started TilingAnswer TilingQuestion Trial
            Waits
        studies.tuning.tune: Tuner point_of
        torch.setting: Setting
        validate.ablation: Ablation
        validate.compare: Group Summary
        validate.coverage: Coverage comparison_line
        validate.plans.measured: MeasuredRanking
        validate.ranking: Ranking
        validate.reading: Unusable
        validate.run: Validation
        validate.schema: Row
        workloads.loader: load_workload workload_names
        workloads.records: Layer Workload merged
        workloads.writer: toml_text
    """,
    "moves bytes as they are, or looks at names": """
        aclnn.c.calls: aclDestroyAclOpExecutor aclSetAclOpExecutorRepeatable aclSetInputTensorAddr
            aclSetOutputTensorAddr aclSetTensorAddr
        aclnn.c.runtime: aclFinalize aclGetRecentErrMsg aclInit aclrtCreateStream aclrtCtxGetSysParamOpt
            aclrtCtxSetSysParamOpt aclrtDestroyStream aclrtFree aclrtMalloc aclrtMemcpy aclrtResetDevice
            aclrtSetDevice aclrtSynchronizeStream
        aclnn.c.tensors: aclCreateBoolArray aclCreateIntArray aclCreateTensor aclDestroyIntArray
            aclDestroyTensor
        profile.changes: contradiction
        profile.files: is_file_name
        profile.reading: configs_directory
        studies.engine.table: write_table
        torch.network: read_network
        torch.recorder: record
    """,
    "an instruction, or compiled code, which runs under the guard of what runs it": """
        native.function: Native
        vector.instructions: Add CopyGmToUb CopyUbToGm
    """,
    "a step of a twin, code_table, error_metrics or reference_gradients, shown nowhere": """
        numerics.accumulation.twins: add_block align block_add exact_sum exponent low_half output
            product rounded seq seq_muladd term total tree
        numerics.formats.cast_twins: floor_log2
        numerics.formats.hifloat8_codes: positive_values value_of_code
        numerics.formats.tables: field_value
        numerics.metric_chunks: chunk_totals root_mean_square round_reference
        ops.reference.dilated: spread
        ops.reference.merged: merged_dgrad merged_wgrad
        ops.reference.ordered: append_slices im2col ordered_dgrad reduction_by_groups reduction_of
            sources
        ops.reference.ordered_wgrad: ordered_wgrad
        ops.reference.passes: passed_dgrad
        ops.reference.phases: any_dgrad phased_dgrad
        ops.reference.products: ordered_product
        ops.reference.sums: add_as_tree add_in_order add_to_zeros
        ops.reference.winograd: any_wgrad winograd_wgrad
    """,
    "takes seconds; what it computes with is looked at below": """
        precision: identify
        studies.identify.judge: identify_outputs
        validate.quoted: tuning_noise
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
