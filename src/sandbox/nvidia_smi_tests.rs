//! Queries, busy GPUs, visible devices.

use super::*;

fn two_gpu_settings() -> FakeHostSettings {
    FakeHostSettings {
        name: "gpu01".to_owned(),
        gpus: 2,
        gpu_model: "NVIDIA H100".to_owned(),
        gpu_memory_mib: 81_559,
        ..FakeHostSettings::default()
    }
}

fn run_query(line: &str, apps: &[GpuApp]) -> ProgramOutput {
    let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let settings = two_gpu_settings();
    let visible = [VisibleGpu { index: 0, host_index: 0 }, VisibleGpu { index: 1, host_index: 1 }];
    let state = SmiState { settings: &settings, visible: &visible, apps, now: Duration::from_secs(7) };
    build_output(&parse_args(&words).expect("a query"), state, true)
}

#[test]
fn queries_print_requested_headers_and_units() {
    let output = run_query("--query-gpu=index,memory.total,utilization.gpu --format=csv", &[]).stdout;
    assert_eq!(output, "index, memory.total [MiB], utilization.gpu [%]\n0, 81559 MiB, 0 %\n1, 81559 MiB, 0 %\n");
    let output = run_query("--query-gpu=index,memory.used --format=csv,noheader,nounits", &[]).stdout;
    assert_eq!(output, "0, 4\n1, 4\n");
}

#[test]
fn ranks_make_their_gpu_busy() {
    let app = GpuApp { pid: 7, gpu: 1, name: "python3".to_owned() };
    let output = run_query("--query-gpu=utilization.gpu --format=csv,noheader,nounits", std::slice::from_ref(&app)).stdout;
    let busy: Vec<u32> = output.lines().map(|line| line.parse().expect("a number")).collect();
    assert!(busy[0] == 0 && busy[1] > 90, "{output}");
    let output = run_query("--query-compute-apps=pid,gpu_uuid --format=csv,noheader", &[app]).stdout;
    assert!(output.starts_with("7, GPU-"), "{output}");
}

#[test]
fn processes_use_only_visible_gpus() {
    let of = |text: &str| gpus_of_process(&text.split(' ').map(str::to_owned).collect::<Vec<_>>(), 8);
    assert_eq!(of("RANK=9 LOCAL_RANK=1"), [1]);
    assert_eq!(of("NVIDIA_VISIBLE_DEVICES=4,5 LOCAL_RANK=1"), [5]);
    assert_eq!(of("NVIDIA_VISIBLE_DEVICES=4,5 CUDA_VISIBLE_DEVICES=1 LOCAL_RANK=0"), [5]);
    assert_eq!(of("NVIDIA_VISIBLE_DEVICES=4,5 RANK=0"), [4, 5]);
    assert_eq!(of("HOME=/"), Vec::<u32>::new());
}

#[test]
fn unknown_query_fields_are_named() {
    let output = run_query("--query-gpu=index,nope --format=csv", &[]);
    assert!(output.code == 2 && output.stdout.contains("Field \"nope\" is not a valid field to query."), "{output:?}");
    assert_eq!(parse_args(&["--frob".to_owned()]).map_err(|e| e.contains("--frob")), Err(true));
}
