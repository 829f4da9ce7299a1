//! What nvidia-smi is asked, beside the readers of its answers.
//!
//! Broken GPUs answer `[N/A]`, `ERR!` or a sentence: such a value is absent, and the others of the line still count.

use crate::model::gpu::{GpuProcess, GpuSample};
use crate::text::width::first_bytes;

/// How many GPUs of one host are read.
const MAX_GPUS: usize = 256;
/// How many processes of one host are read.
pub(crate) const MAX_PROCESSES: usize = 512;
/// The longest name or sentence that is kept, in bytes.
const MAX_TEXT_BYTES: usize = 200;

/// The fields that are wanted of every GPU, as `nvidia-smi --help-query-gpu` names them. One that a driver does not know fails the whole
/// query, so `assets/host_metrics.sh` leaves it out and says which are left. Throttle reasons have an old name and one since driver 535.
pub(crate) const GPU_QUERY_FIELDS: &str = "index,uuid,name,memory.total,memory.used,utilization.gpu,temperature.gpu,power.draw,power.limit,\
                          clocks.sm,clocks.max.sm,clocks_event_reasons.active,clocks_throttle_reasons.active,\
                          ecc.errors.uncorrected.volatile.total,mig.mode.current";

/// One GPU of the output of `nvidia-smi -L`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListedGpu {
    /// Its index on the host.
    pub index: u32,
    pub name: String,
    /// `GPU-…`; empty if it is not reported.
    pub uuid: String,
    /// How many MIG devices it is cut into.
    pub mig_devices: u32,
}

/// The value of each field in a line; nothing where there are fewer. A name may have commas: the fields after it are counted from the end.
pub(crate) fn split_fields<'a>(fields: &[&str], line: &'a str) -> Option<Vec<&'a str>> {
    let name = fields.iter().position(|field| *field == "name").unwrap_or(fields.len());
    let mut values: Vec<&str> = line.splitn(name + 1, ',').collect();
    if name < fields.len() {
        let last = values.pop()?;
        let mut tail: Vec<&str> = last.rsplitn(fields.len() - name, ',').collect();
        tail.reverse();
        values.extend(tail);
    }
    (values.len() >= fields.len()).then(|| values.into_iter().map(str::trim).collect())
}

/// Reads one line of values for these fields; nothing where it is no such line.
pub(crate) fn parse_gpu_sample(fields: &[&str], line: &str) -> Option<GpuSample> {
    let mut gpu = GpuSample::default();
    let mut numbered = false;
    for (field, text) in fields.iter().zip(split_fields(fields, line)?) {
        match *field {
            "index" => (gpu.index, numbered) = (text.parse().ok()?, true),
            "uuid" => gpu.uuid = self::clean_text(text),
            "name" => gpu.name = self::clean_text(text),
            "memory.total" => gpu.memory_total = parse_number(text),
            "memory.used" => gpu.memory_used = parse_number(text),
            "utilization.gpu" => gpu.utilization = parse_number(text),
            "temperature.gpu" => gpu.temperature = parse_number(text),
            "power.draw" => gpu.power = parse_number(text),
            "power.limit" => gpu.power_limit = parse_number(text),
            "clocks.sm" => gpu.sm_clock = parse_number(text),
            "clocks.max.sm" => gpu.sm_clock_max = parse_number(text),
            "clocks_event_reasons.active" | "clocks_throttle_reasons.active" => {
                let bits = text.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok());
                gpu.throttle_reasons = gpu.throttle_reasons.or(bits);
            }
            "ecc.errors.uncorrected.volatile.total" => gpu.ecc_errors = parse_number(text),
            "mig.mode.current" => {
                gpu.mig_enabled = [("Enabled", true), ("Disabled", false)].iter().find(|(word, _)| *word == text).map(|(_, on)| *on)
            }
            _ => {}
        }
    }
    (numbered && gpu.index < MAX_GPUS as u32).then_some(gpu)
}

/// Reads `pid, uuid, MiB, name`.
pub(crate) fn parse_gpu_process(line: &str) -> Option<GpuProcess> {
    let mut values = line.splitn(4, ',').map(str::trim);
    let pid = values.next()?.parse().ok()?;
    let (gpu, memory, name) = (clean_text(values.next()?), parse_number(values.next()?), clean_text(values.next()?));
    Some(GpuProcess { pid, gpu, memory, name, ..GpuProcess::default() })
}

/// A number, with or without its unit.
fn parse_number(field: &str) -> Option<f32> {
    let number: f32 = field.split_whitespace().next()?.trim_end_matches('%').parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number)
}

/// A text that says something, of bounded length.
fn clean_text(field: &str) -> String {
    if matches!(field, "[N/A]" | "N/A" | "ERR!" | "[Not Supported]" | "[Unknown Error]") {
        return String::new();
    }
    first_bytes(field, MAX_TEXT_BYTES).to_owned()
}

/// Parses the output of `nvidia-smi -L`.
pub(crate) fn parse_gpu_list(answer: &str) -> Vec<ListedGpu> {
    let mut gpus: Vec<ListedGpu> = Vec::new();
    for line in answer.lines() {
        let line = line.trim();
        if let Some(gpu) = parse_listed_gpu(line) {
            if gpus.len() < MAX_GPUS {
                gpus.push(gpu);
            }
        } else if let (true, Some(gpu)) = (line.starts_with("MIG "), gpus.last_mut()) {
            gpu.mig_devices += 1;
        }
    }
    gpus
}

/// `GPU 0: NVIDIA H20 (UUID: GPU-5a…)`.
fn parse_listed_gpu(line: &str) -> Option<ListedGpu> {
    let (index, rest) = line.strip_prefix("GPU ")?.split_once(':')?;
    let index = index.trim().parse().ok()?;
    let (name, uuid) = match rest.rsplit_once("(UUID:") {
        Some((name, uuid)) => (name, uuid.trim().trim_end_matches(')')),
        None => (rest, ""),
    };
    Some(ListedGpu { index, name: clean_text(name.trim()), uuid: clean_text(uuid.trim()), mig_devices: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn query_fields() -> Vec<&'static str> {
        GPU_QUERY_FIELDS.split(',').filter(|field| *field != "clocks_throttle_reasons.active").collect()
    }

    #[test]
    fn healthy_gpu_line_is_parsed() {
        let gpu = parse_gpu_sample(
            &query_fields(),
            "0, GPU-5a1b, NVIDIA H20, 97871, 1024, 87, 54, 312.45, 500.00, 1755, 1980, 0x0000000000000024, 0, Disabled",
        );
        let expected = GpuSample {
            index: 0,
            uuid: "GPU-5a1b".to_owned(),
            name: "NVIDIA H20".to_owned(),
            memory_total: Some(97871.0),
            memory_used: Some(1024.0),
            utilization: Some(87.0),
            temperature: Some(54.0),
            power: Some(312.45),
            power_limit: Some(500.0),
            sm_clock: Some(1755.0),
            sm_clock_max: Some(1980.0),
            throttle_reasons: Some(0x24),
            ecc_errors: Some(0.0),
            mig_enabled: Some(false),
        };
        assert_eq!(gpu, Some(expected));
        let reasons = |bits| GpuSample { throttle_reasons: Some(bits), ..GpuSample::default() }.throttle_reason_names().collect::<Vec<_>>();
        assert_eq!(reasons(0x24), ["power cap", "too hot"]);
        assert!(reasons(0x1 | 0x2).is_empty(), "idle, and clocks that were set");
    }

    /// Recorded on an H200 with driver 580.159.04 while two ranks computed; it knows the old and the new name of the throttle reasons. The UUID
    /// is another one.
    #[test]
    fn recorded_lines_of_an_h200_are_parsed() {
        let fields: Vec<&str> = GPU_QUERY_FIELDS.split(',').collect();
        let uuid = "GPU-5a7d0001-0000-4000-8000-000000000000";
        let line = format!(
            "0, {uuid}, NVIDIA H200, 143771, 2851, 100, 56, 695.11, 700.00, 1560, 1980, 0x0000000000000004, 0x0000000000000004, 0, Disabled"
        );
        let gpu = parse_gpu_sample(&fields, &line).expect("a GPU");
        assert_eq!((gpu.name.as_str(), gpu.uuid.as_str(), gpu.mig_enabled), ("NVIDIA H200", uuid, Some(false)));
        assert_eq!(
            (gpu.memory_total, gpu.memory_used, gpu.power, gpu.sm_clock),
            (Some(143771.0), Some(2851.0), Some(695.11), Some(1560.0))
        );
        assert_eq!((gpu.throttle_reasons, gpu.ecc_errors), (Some(4), Some(0.0)));
        let process = parse_gpu_process(&format!("1732, {uuid}, 1418, python3")).expect("a process");
        assert_eq!((process.pid, process.gpu.as_str(), process.memory, process.name.as_str()), (1732, uuid, Some(1418.0), "python3"));
        assert_eq!(parse_gpu_list(&format!("GPU 0: NVIDIA H200 (UUID: {uuid})"))[0].uuid, uuid);
    }

    #[test]
    fn broken_values_are_skipped() {
        let some = ["index", "uuid", "name", "memory.total", "utilization.gpu", "power.limit"];
        for odd in ["[N/A]", "ERR!", "[Not Supported]", "[Unknown Error]", "[GPU requires reset]", "nan", "inf", "-1", ""] {
            let gpu = parse_gpu_sample(&some, &format!("3, GPU-x, NVIDIA A100, 81920, {odd}, 400")).expect(odd);
            assert_eq!((gpu.utilization, gpu.memory_total, gpu.power_limit), (None, Some(81920.0), Some(400.0)), "{odd}");
        }
        let gpu = parse_gpu_sample(&some, "0, [N/A], Weird, Name, 80 MiB, 5 %, 400 W").expect("a GPU");
        assert_eq!((gpu.name.as_str(), gpu.uuid.as_str(), gpu.memory_total, gpu.utilization), ("Weird, Name", "", Some(80.0), Some(5.0)));
        for sentence in ["No devices were found", "Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost.", "", "x, y"] {
            assert_eq!(parse_gpu_sample(&some, sentence), None, "{sentence}");
        }
    }

    #[test]
    fn process_name_may_contain_commas() {
        let process = parse_gpu_process("4711, GPU-5a, 1024, python3 -c 'a, b'").expect("a process");
        assert_eq!((process.pid, process.gpu.as_str(), process.memory), (4711, "GPU-5a", Some(1024.0)));
        assert_eq!(process.name, "python3 -c 'a, b'");
        assert_eq!(parse_gpu_process("1, GPU-5a, [N/A], x").and_then(|p| p.memory), None);
        assert_eq!(parse_gpu_process("No running processes found"), None);
    }

    #[test]
    fn gpu_list_counts_mig_devices_separately() {
        let answer = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0a)\n  MIG 1g.10gb     Device  0: (UUID: MIG-1)\n  MIG 1g.10gb     Device  1: (UUID: MIG-2)\n\
                      GPU 1: NVIDIA H100 (SXM) (UUID: GPU-0b)\nGPU 2: old driver\nrubbish\n";
        let gpus = parse_gpu_list(answer);
        let output: Vec<(u32, &str, &str, u32)> =
            gpus.iter().map(|gpu| (gpu.index, gpu.name.as_str(), gpu.uuid.as_str(), gpu.mig_devices)).collect();
        assert_eq!(output, [(0, "NVIDIA H100 80GB HBM3", "GPU-0a", 2), (1, "NVIDIA H100 (SXM)", "GPU-0b", 0), (2, "old driver", "", 0)]);
    }

    proptest! {
        #[test]
        fn parsers_accept_arbitrary_text(answer in "[0-9, a-zGPU:()\\[\\]\u{4e2d}\n]{0,300}") {
            prop_assert!(parse_gpu_sample(&query_fields(), &answer).is_none_or(|gpu| gpu.name.len() <= MAX_TEXT_BYTES));
            prop_assert!(parse_gpu_process(&answer).is_none_or(|process| process.name.len() <= MAX_TEXT_BYTES));
            prop_assert!(parse_gpu_list(&answer).len() <= MAX_GPUS);
        }
    }
}
