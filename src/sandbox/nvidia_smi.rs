//! nvidia-smi's stand-in: lists, queries and loops over the GPUs that the scenario gives, busy where a rank of this host runs.
//!
//! A GPU is used by the innermost process whose environment has its index as `LOCAL_RANK` (or, with a `RANK` alone, all that it sees). The
//! numbers move with the clock; they mean nothing.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::fake_host::FakeHostSettings;
use super::fake_program::{ProgramContext, ProgramOutput};
use super::processes;

const DRIVER_VERSION: &str = "550.127.05";
const CUDA_VERSION: &str = "12.4";

/// What the command line asks for.
#[derive(Debug, Default, PartialEq)]
struct SmiArgs {
    list_gpus: bool,
    gpu_query: Option<Vec<String>>,
    app_query: Option<Vec<String>>,
    noheader: bool,
    nounits: bool,
    gpu_ids: Option<Vec<String>>,
    loop_interval: Option<Duration>,
}

/// A GPU by the number that is shown and the one it has on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct VisibleGpu {
    index: u32,
    host_index: u32,
}

/// A process on a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
struct GpuApp {
    pid: i32,
    gpu: u32,
    name: String,
}

/// Acts as `nvidia-smi`.
pub(super) fn nvidia_smi_main(context: &ProgramContext, args: &[String]) -> ExitCode {
    let asked = match parse_args(args) {
        Ok(asked) => asked,
        Err(text) => return ProgramOutput::fail(2, text).print(),
    };
    let settings = context.host.settings();
    if settings.gpus == 0 {
        let text = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is \
                    installed and running.\n";
        return ProgramOutput { code: 9, stdout: text.to_owned(), stderr: String::new() }.print();
    }
    let visible = visible_gpus(context, &settings, asked.gpu_ids.as_deref());
    let mut first = true;
    loop {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let answer =
            build_output(&asked, SmiState { settings: &settings, visible: &visible, apps: &find_gpu_apps(context, &settings), now }, first);
        let code = answer.print();
        let Some(pause) = asked.loop_interval else { return code };
        if answer.code != 0 || std::io::stdout().flush().is_err() || code != ExitCode::SUCCESS {
            return ExitCode::from(answer.code.max(1));
        }
        first = false;
        std::thread::sleep(pause);
    }
}

fn parse_args(args: &[String]) -> Result<SmiArgs, String> {
    let mut asked = SmiArgs::default();
    let mut words = args.iter();
    let fields = |text: &str| text.split(',').map(|f| f.trim().to_owned()).filter(|f| !f.is_empty()).collect::<Vec<_>>();
    let seconds = |text: &str, unit: u64| text.parse::<u64>().map(|n| Duration::from_millis((n * unit).max(1))).ok();
    while let Some(word) = words.next() {
        let (name, value) = word.split_once('=').map_or((word.as_str(), None), |(n, v)| (n, Some(v.to_owned())));
        let mut take = || value.clone().or_else(|| words.next().cloned()).unwrap_or_default();
        match name {
            "-L" | "--list-gpus" => asked.list_gpus = true,
            "--query-gpu" => asked.gpu_query = Some(fields(&take())),
            "--query-compute-apps" => asked.app_query = Some(fields(&take())),
            "--format" => {
                let format = take();
                asked.noheader = format.contains("noheader");
                asked.nounits = format.contains("nounits");
            }
            "-i" | "--id" => asked.gpu_ids = Some(fields(&take())),
            "-l" | "--loop" => asked.loop_interval = seconds(&take(), 1000),
            "-lms" | "--loop-ms" => asked.loop_interval = seconds(&take(), 1),
            _ if name.starts_with("-lms") => asked.loop_interval = seconds(name.trim_start_matches("-lms"), 1),
            _ => return Err(format!("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n{word}")),
        }
    }
    Ok(asked)
}

/// Which GPUs are shown. In a container they are those it was given, renumbered from 0.
fn visible_gpus(context: &ProgramContext, settings: &FakeHostSettings, ids: Option<&[String]>) -> Vec<VisibleGpu> {
    let given = std::env::var("NVIDIA_VISIBLE_DEVICES").ok().filter(|_| context.container_id.is_some());
    let mut shown: Vec<VisibleGpu> =
        (0..).zip(parse_gpu_list(given.as_deref(), settings.gpus)).map(|(index, real)| VisibleGpu { index, host_index: real }).collect();
    if let Some(ids) = ids {
        shown.retain(|gpu| ids.iter().any(|id| id == &gpu.index.to_string() || *id == gpu_uuid(settings, gpu.host_index)));
    }
    shown
}

/// The GPUs that a list of indexes means; no list or `all`: every one.
fn parse_gpu_list(list: Option<&str>, there: u32) -> Vec<u32> {
    match list.filter(|list| *list != "all") {
        Some(list) => list.split(',').filter_map(|index| index.parse().ok()).filter(|index| *index < there).collect(),
        None => (0..there).collect(),
    }
}

/// The innermost process of each rank of this host. Looked for only where a launcher has left a record: looking is not free.
fn find_gpu_apps(context: &ProgramContext, settings: &FakeHostSettings) -> Vec<GpuApp> {
    let host = format!("SANDBOX_HOST={}", context.host.root().display());
    let Ok(entries) = std::fs::read_dir(context.host.root().join("gpu")) else { return Vec::new() };
    if entries.count() == 0 {
        return Vec::new();
    }
    let mut found: Vec<GpuApp> = Vec::new();
    for pid in processes::find_marked(&host) {
        let variables = processes::process_environ(pid);
        let name = processes::command_line(pid).split(' ').next().unwrap_or_default().to_owned();
        if name.ends_with("sleep") {
            continue;
        }
        for gpu in gpus_of_process(&variables, settings.gpus) {
            found.retain(|app| app.gpu != gpu);
            found.push(GpuApp { pid, gpu, name: name.clone() });
        }
    }
    found
}

/// Which GPUs a process uses: the one of its `LOCAL_RANK`, all that it sees if it has only a `RANK`, none if it has neither.
fn gpus_of_process(variables: &[String], there: u32) -> Vec<u32> {
    let value = |name: &str| variables.iter().find_map(|v| v.strip_prefix(name)?.strip_prefix('='));
    let given = parse_gpu_list(value("NVIDIA_VISIBLE_DEVICES"), there);
    let narrowed = value("CUDA_VISIBLE_DEVICES").map(|list| parse_gpu_list(Some(list), there));
    let seen: Vec<u32> = match narrowed {
        Some(list) => list.into_iter().filter_map(|index| given.get(index as usize).copied()).collect(),
        None => given,
    };
    match value("LOCAL_RANK").map(str::parse::<usize>) {
        Some(Ok(local)) => seen.get(local).copied().into_iter().collect(),
        Some(Err(_)) => Vec::new(),
        None if value("RANK").is_some() => seen,
        None => Vec::new(),
    }
}

/// What the answers are made from.
#[derive(Clone, Copy)]
struct SmiState<'a> {
    settings: &'a FakeHostSettings,
    visible: &'a [VisibleGpu],
    apps: &'a [GpuApp],
    /// Since 1970: the values wander with it.
    now: Duration,
}

fn build_output(args: &SmiArgs, state: SmiState<'_>, first: bool) -> ProgramOutput {
    let SmiState { settings, visible, apps, now } = state;
    // The head names the units whether or not the values carry them.
    let header = |names: &[String]| {
        let names = names.iter().map(|name| format!("{}{}", canonical_field(name), field_unit(name)));
        if first && !args.noheader { format!("{}\n", names.collect::<Vec<_>>().join(", ")) } else { String::new() }
    };
    if args.list_gpus {
        let lines =
            visible.iter().map(|g| format!("GPU {}: {} (UUID: {})\n", g.index, settings.gpu_model, gpu_uuid(settings, g.host_index)));
        return ProgramOutput::ok(lines.collect::<String>());
    }
    let rows: Vec<Vec<Option<(String, &'static str)>>>;
    let names;
    if let Some(fields) = &args.gpu_query {
        names = fields;
        rows = visible.iter().map(|g| fields.iter().map(|f| gpu_field(f, *g, state)).collect()).collect();
    } else if let Some(fields) = &args.app_query {
        names = fields;
        let shown = apps.iter().filter(|app| visible.iter().any(|g| g.host_index == app.gpu));
        rows = shown.map(|app| fields.iter().map(|f| app_field(f, app, settings, now)).collect()).collect();
        if let Some(wrong) = fields.iter().find(|f| app_field(f, &GpuApp { pid: 0, gpu: 0, name: String::new() }, settings, now).is_none())
        {
            return invalid_field(wrong);
        }
    } else {
        return ProgramOutput::ok(status_table(state));
    }
    let mut out = header(names);
    for row in rows {
        let mut cells = Vec::new();
        for (cell, name) in row.into_iter().zip(names) {
            let Some((value, unit)) = cell else { return invalid_field(name) };
            cells.push(if args.nounits || unit.is_empty() { value } else { format!("{value} {unit}") });
        }
        out.push_str(&format!("{}\n", cells.join(", ")));
    }
    ProgramOutput::ok(out)
}

fn invalid_field(name: &str) -> ProgramOutput {
    ProgramOutput { code: 2, stdout: format!("Field \"{name}\" is not a valid field to query.\n\n"), stderr: String::new() }
}

/// The name of a column that has two.
fn canonical_field(name: &str) -> &str {
    if name == "used_memory" { "used_gpu_memory" } else { name }
}

/// The unit after a column's name.
fn field_unit(name: &str) -> &'static str {
    match name {
        _ if name.starts_with("memory.") || name.starts_with("used_") => " [MiB]",
        _ if name.starts_with("utilization.") || name == "fan.speed" => " [%]",
        _ if name.starts_with("power.") || name.starts_with("enforced.power") => " [W]",
        _ if name.starts_with("clocks.") => " [MHz]",
        _ => "",
    }
}

fn gpu_uuid(settings: &FakeHostSettings, gpu: u32) -> String {
    let host = settings.name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, b| (hash ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    format!("GPU-{:08x}-{:04x}-4a11-8000-{gpu:012x}", host >> 32, host & 0xffff)
}

fn pci_bus_id(gpu: u32) -> String {
    format!("00000000:{:02X}:00.0", 0x18 + gpu * 0x11)
}

/// A number from `low` to `high` that wanders with time, differently for each GPU.
fn oscillate(now: Duration, gpu: u32, low: f64, high: f64) -> f64 {
    let phase = now.as_secs_f64() / 3.0 + f64::from(gpu) * 1.7;
    low + (high - low) * (phase.sin() * 0.5 + 0.5)
}

fn used_memory_mib(settings: &FakeHostSettings, gpu: u32, busy: bool, now: Duration) -> u64 {
    let share = if busy { oscillate(now, gpu, 0.70, 0.74) } else { 0.0 };
    4 + (settings.gpu_memory_mib as f64 * share) as u64
}

fn timestamp() -> String {
    jiff::Timestamp::now().strftime("%Y/%m/%d %H:%M:%S.%3f").to_string()
}

fn gpu_field(name: &str, shown: VisibleGpu, state: SmiState<'_>) -> Option<(String, &'static str)> {
    let SmiState { settings, visible, apps, now } = state;
    let gpu = shown.host_index;
    let busy = apps.iter().any(|app| app.gpu == gpu);
    let total = settings.gpu_memory_mib;
    let between = |idle: f64, low: f64, high: f64| format!("{:.0}", if busy { oscillate(now, gpu, low, high) } else { idle });
    Some(match name {
        "index" | "gpu_index" => (shown.index.to_string(), ""),
        "uuid" | "gpu_uuid" => (gpu_uuid(settings, gpu), ""),
        "name" | "gpu_name" => (settings.gpu_model.clone(), ""),
        "count" => (visible.len().to_string(), ""),
        "driver_version" => (DRIVER_VERSION.to_owned(), ""),
        "timestamp" => (timestamp(), ""),
        "pci.bus_id" | "gpu_bus_id" => (pci_bus_id(gpu), ""),
        "memory.total" => (total.to_string(), "MiB"),
        "memory.used" => (used_memory_mib(settings, gpu, busy, now).to_string(), "MiB"),
        "memory.free" => (total.saturating_sub(used_memory_mib(settings, gpu, busy, now)).to_string(), "MiB"),
        "memory.reserved" => ("0".to_owned(), "MiB"),
        "utilization.gpu" => (between(0.0, 91.0, 100.0), "%"),
        "utilization.memory" => (between(0.0, 40.0, 62.0), "%"),
        "temperature.gpu" => (between(31.0, 58.0, 67.0), ""),
        "temperature.memory" => (between(38.0, 66.0, 74.0), ""),
        "power.draw" | "power.draw.average" | "power.draw.instant" => {
            (format!("{:.2}", if busy { oscillate(now, gpu, 540.0, 690.0) } else { 71.5 }), "W")
        }
        "power.limit" | "enforced.power.limit" | "power.max_limit" => ("700.00".to_owned(), "W"),
        "clocks.sm" | "clocks.current.sm" | "clocks.gr" | "clocks.current.graphics" => (between(345.0, 1755.0, 1980.0), "MHz"),
        "clocks.mem" | "clocks.current.memory" => ("2619".to_owned(), "MHz"),
        "clocks.max.sm" | "clocks.max.graphics" => ("1980".to_owned(), "MHz"),
        "pstate" => ("P0".to_owned(), ""),
        "persistence_mode" => ("Enabled".to_owned(), ""),
        "compute_mode" => ("Default".to_owned(), ""),
        "mig.mode.current" | "mig.mode.pending" => ("Disabled".to_owned(), ""),
        "ecc.mode.current" => ("Enabled".to_owned(), ""),
        "compute_cap" => ("9.0".to_owned(), ""),
        "fan.speed" | "serial" | "vbios_version" => ("[N/A]".to_owned(), ""),
        _ if name.starts_with("ecc.errors.") || name.starts_with("retired_pages.") || name.starts_with("remapped_rows.") => {
            ("0".to_owned(), "")
        }
        _ if name.ends_with("_reasons.active") => ("0x0000000000000000".to_owned(), ""),
        _ if name.starts_with("clocks_throttle_reasons.") || name.starts_with("clocks_event_reasons.") => ("Not Active".to_owned(), ""),
        _ if name.starts_with("pcie.link.gen") => ("5".to_owned(), ""),
        _ if name.starts_with("pcie.link.width") => ("16".to_owned(), ""),
        _ => return None,
    })
}

fn app_field(name: &str, app: &GpuApp, settings: &FakeHostSettings, now: Duration) -> Option<(String, &'static str)> {
    Some(match name {
        "pid" => (app.pid.to_string(), ""),
        "process_name" | "name" => (app.name.clone(), ""),
        "used_memory" | "used_gpu_memory" => (used_memory_mib(settings, app.gpu, true, now).to_string(), "MiB"),
        "gpu_uuid" => (gpu_uuid(settings, app.gpu), ""),
        "gpu_bus_id" => (pci_bus_id(app.gpu), ""),
        "gpu_name" => (settings.gpu_model.clone(), ""),
        "timestamp" => (timestamp(), ""),
        _ => return None,
    })
}

fn status_table(state: SmiState<'_>) -> String {
    let SmiState { settings, visible, apps, .. } = state;
    let mut out = format!("| NVIDIA-SMI {DRIVER_VERSION}    Driver Version: {DRIVER_VERSION}    CUDA Version: {CUDA_VERSION} |\n");
    for gpu in visible {
        let cell = |name| gpu_field(name, *gpu, state).map(|(value, unit)| format!("{value}{unit}")).unwrap_or_default();
        out.push_str(&format!(
            "| {:>3}  {}  {} | {}C  {} / {} | {} / {} | {} |\n",
            gpu.index,
            settings.gpu_model,
            pci_bus_id(gpu.host_index),
            cell("temperature.gpu"),
            cell("power.draw"),
            cell("power.limit"),
            cell("memory.used"),
            cell("memory.total"),
            cell("utilization.gpu"),
        ));
    }
    for app in apps {
        out.push_str(&format!("|  {}  {}  C  {} |\n", app.gpu, app.pid, app.name));
    }
    out
}

#[cfg(test)]
#[path = "nvidia_smi_tests.rs"]
mod tests;
