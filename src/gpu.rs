//! What nvidia-smi is asked, beside the readers of its answers.
//!
//! Uses nothing. Broken GPUs answer `[N/A]`, `ERR!` or a sentence: such a value is absent, and the others of the line still count.

/// The columns of [`QUERY`], in their order.
const COLUMNS: usize = 9;
/// How many GPUs of one host are read.
const MOST: usize = 256;
/// The longest name or sentence that is kept, in bytes.
const TEXT: usize = 200;

/// The values that are sampled, as an argument vector.
pub const QUERY: [&str; 3] = [
    "nvidia-smi",
    "--query-gpu=index,uuid,name,memory.total,memory.used,utilization.gpu,temperature.gpu,power.draw,power.limit",
    "--format=csv,noheader,nounits",
];

/// The list of GPUs, as an argument vector.
pub const LIST: [&str; 2] = ["nvidia-smi", "-L"];

/// One line of the answer to [`QUERY`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Gpu {
    /// Its index on the host.
    pub index: u32,
    /// `GPU-…`; empty where it was not told.
    pub uuid: String,
    /// Its product name; empty where it was not told.
    pub name: String,
    /// Memory, MiB.
    pub memory_total: Option<f32>,
    /// Memory in use, MiB.
    pub memory_used: Option<f32>,
    /// Utilisation, percent.
    pub utilization: Option<f32>,
    /// Temperature, degrees Celsius.
    pub temperature: Option<f32>,
    /// Power, watt.
    pub power: Option<f32>,
    /// The most power that it may draw, watt.
    pub power_limit: Option<f32>,
}

/// One GPU of the answer to [`LIST`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its index on the host.
    pub index: u32,
    /// Its product name.
    pub name: String,
    /// `GPU-…`; empty where it was not told.
    pub uuid: String,
    /// How many MIG devices it is cut into.
    pub mig: u32,
}

/// Reads the answer to [`QUERY`]. Lines that are none are passed over; see [`complaint`].
pub fn parse(answer: &str) -> Vec<Gpu> {
    answer.lines().filter_map(line).take(MOST).collect()
}

fn line(line: &str) -> Option<Gpu> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let index = fields.first()?.parse().ok()?;
    // A name with a comma in it makes the line longer: the numbers are counted from its end.
    let spare = fields.len().checked_sub(COLUMNS)?;
    let number = |column: usize| fields.get(column + spare).and_then(|field| value(field));
    Some(Gpu {
        index,
        uuid: text(fields.get(1)?),
        name: text(&fields.get(2..=2 + spare)?.join(", ")),
        memory_total: number(3),
        memory_used: number(4),
        utilization: number(5),
        temperature: number(6),
        power: number(7),
        power_limit: number(8),
    })
}

/// A number, with or without its unit.
fn value(field: &str) -> Option<f32> {
    let number: f32 = field.split_whitespace().next()?.trim_end_matches('%').parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number)
}

/// A text that says something, of bounded length.
fn text(field: &str) -> String {
    if matches!(field, "[N/A]" | "N/A" | "ERR!" | "[Not Supported]" | "[Unknown Error]") {
        return String::new();
    }
    let end = (0..=TEXT.min(field.len())).rev().find(|at| field.is_char_boundary(*at)).unwrap_or(0);
    field[..end].to_owned()
}

/// Reads the answer to [`LIST`].
pub fn parse_list(answer: &str) -> Vec<Listed> {
    let mut gpus: Vec<Listed> = Vec::new();
    for line in answer.lines() {
        let line = line.trim();
        if let Some(gpu) = listed(line) {
            if gpus.len() < MOST {
                gpus.push(gpu);
            }
        } else if let (true, Some(gpu)) = (line.starts_with("MIG "), gpus.last_mut()) {
            gpu.mig += 1;
        }
    }
    gpus
}

/// `GPU 0: NVIDIA H20 (UUID: GPU-5a…)`.
fn listed(line: &str) -> Option<Listed> {
    let (index, rest) = line.strip_prefix("GPU ")?.split_once(':')?;
    let index = index.trim().parse().ok()?;
    let (name, uuid) = match rest.rsplit_once("(UUID:") {
        Some((name, uuid)) => (name, uuid.trim().trim_end_matches(')')),
        None => (rest, ""),
    };
    Some(Listed { index, name: text(name.trim()), uuid: text(uuid.trim()), mig: 0 })
}

/// What nvidia-smi says instead of an answer: its first line that is neither a value nor empty.
pub fn complaint(answer: &str) -> Option<String> {
    let plain = |l: &&str| !l.is_empty() && line(l).is_none() && listed(l).is_none() && !l.starts_with("MIG ");
    answer.lines().map(str::trim).find(plain).map(text).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_healthy_host() {
        let gpus =
            parse("0, GPU-5a1b, NVIDIA H20, 97871, 1024, 87, 54, 312.45, 500.00\n1, GPU-6c, NVIDIA H20, 97871, 0, 0, 30, 75.10, 500.00\n");
        assert_eq!(gpus.len(), 2);
        let first = Gpu {
            index: 0,
            uuid: "GPU-5a1b".to_owned(),
            name: "NVIDIA H20".to_owned(),
            memory_total: Some(97871.0),
            memory_used: Some(1024.0),
            utilization: Some(87.0),
            temperature: Some(54.0),
            power: Some(312.45),
            power_limit: Some(500.0),
        };
        assert_eq!(gpus[0], first);
    }

    #[test]
    fn broken_values_are_absent_and_the_others_count() {
        for odd in ["[N/A]", "ERR!", "[Not Supported]", "[Unknown Error]", "[GPU requires reset]", "nan", "inf", "-1", ""] {
            let gpus = parse(&format!("3, GPU-x, NVIDIA A100, 81920, 10, {odd}, 40, {odd}, 400"));
            let [gpu] = &gpus[..] else { panic!("{odd}") };
            assert_eq!((gpu.utilization, gpu.power, gpu.memory_used, gpu.power_limit), (None, None, Some(10.0), Some(400.0)), "{odd}");
        }
        let gpus = parse("0, [N/A], Weird, Name, 80 MiB, 10 MiB, 5 %, 40, 1.5 W, 400 W");
        assert_eq!((gpus[0].name.as_str(), gpus[0].uuid.as_str()), ("Weird, Name", ""));
        assert_eq!((gpus[0].memory_total, gpus[0].utilization, gpus[0].power), (Some(80.0), Some(5.0), Some(1.5)));
    }

    #[test]
    fn rubbish_is_no_gpu_but_a_complaint() {
        for sentence in [
            "No devices were found",
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
            "Failed to initialize NVML: Driver/library version mismatch",
            "Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost.",
        ] {
            assert_eq!(parse(sentence), Vec::new());
            assert_eq!(complaint(&format!("\n{sentence}\n")).as_deref(), Some(sentence));
        }
        assert_eq!(complaint("0, GPU-x, N, 1, 1, 1, 1, 1, 1\n"), None);
        assert_eq!(complaint("GPU 0: N (UUID: GPU-x)\n  MIG 1g.10gb Device 0: (UUID: MIG-y)\n"), None);
    }

    #[test]
    fn the_list_counts_gpus_not_their_slices() {
        let answer = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0a)\n  MIG 1g.10gb     Device  0: (UUID: MIG-1)\n  MIG 1g.10gb     Device  1: (UUID: MIG-2)\n\
                      GPU 1: NVIDIA H100 (SXM) (UUID: GPU-0b)\nGPU 2: old driver\nrubbish\n";
        let gpus = parse_list(answer);
        let told: Vec<(u32, &str, &str, u32)> = gpus.iter().map(|gpu| (gpu.index, gpu.name.as_str(), gpu.uuid.as_str(), gpu.mig)).collect();
        assert_eq!(told, [(0, "NVIDIA H100 80GB HBM3", "GPU-0a", 2), (1, "NVIDIA H100 (SXM)", "GPU-0b", 0), (2, "old driver", "", 0)]);
    }

    proptest! {
        #[test]
        fn anything_can_be_read(answer in "[0-9, a-zGPU:()\\[\\]\u{4e2d}\n]{0,300}") {
            prop_assert!(parse(&answer).len() <= MOST);
            prop_assert!(parse_list(&answer).len() <= MOST);
            prop_assert!(complaint(&answer).is_none_or(|text| text.len() <= TEXT));
        }
    }
}
