//! What is known of a GPU and of a process on it.

use serde::{Deserialize, Serialize};

/// One GPU as nvidia-smi reports it. A value that is missing, `[N/A]` or `ERR!` is absent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuSample {
    /// Its index on the host.
    pub index: u32,
    /// `GPU-…`; empty if it is not reported.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uuid: String,
    /// Its product name; empty if it is not reported.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Utilisation, percent: the share of the last second in which some kernel ran.
    pub utilization: Option<f32>,
    /// Memory in use, MiB.
    pub memory_used: Option<f32>,
    pub memory_total: Option<f32>,
    pub power: Option<f32>,
    /// The most power that it may draw, watt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_limit: Option<f32>,
    pub temperature: Option<f32>,
    /// The clock of its multiprocessors, MHz.
    #[serde(alias = "clock", skip_serializing_if = "Option::is_none")]
    pub sm_clock: Option<f32>,
    /// The highest that clock may be, MHz.
    #[serde(alias = "clock_max", skip_serializing_if = "Option::is_none")]
    pub sm_clock_max: Option<f32>,
    /// Why the clock is held down, a bit a reason: see [`GpuSample::throttle_reason_names`].
    #[serde(alias = "reasons", skip_serializing_if = "Option::is_none")]
    pub throttle_reasons: Option<u64>,
    /// Memory errors that could not be corrected, since the driver was loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecc_errors: Option<f32>,
    /// Whether it is cut into MIG devices.
    #[serde(alias = "mig", skip_serializing_if = "Option::is_none")]
    pub mig_enabled: Option<bool>,
}

/// A process on a GPU.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuProcess {
    /// Its id on the host.
    pub pid: u32,
    /// The GPU's `GPU-…`, or a MIG device's `MIG-…`.
    pub gpu: String,
    /// GPU memory in use, MiB.
    pub memory: Option<f32>,
    /// Its owner on the host; empty if it is not reported.
    pub user: String,
    pub name: String,
    /// Whether it belongs to this run.
    #[serde(alias = "ours")]
    pub belongs_to_run: bool,
}

const POWER_CAP: &str = "power cap";

/// The bits of NVML's `nvmlClocksEventReasons`. Idleness and clocks that a person has set are no such reasons.
const THROTTLE_REASONS: [(u64, &str); 5] =
    [(0x04, POWER_CAP), (0x08, "hardware slowdown"), (0x20, "too hot"), (0x40, "hardware: too hot"), (0x80, "hardware: power brake")];

impl GpuSample {
    /// Why its clock is held below what it could be, in words.
    pub(crate) fn throttle_reason_names(&self) -> impl Iterator<Item = &'static str> {
        let reasons = self.throttle_reasons.unwrap_or_default();
        THROTTLE_REASONS.iter().filter(move |(bit, _)| reasons & bit != 0).map(|(_, why)| *why)
    }

    /// The first reason other than its power cap, under which a GPU that works well runs too.
    pub(crate) fn slowdown_reason(&self) -> Option<&'static str> {
        self.throttle_reason_names().find(|why| *why != POWER_CAP)
    }

    /// How many memory errors could not be corrected; `None`: no such error is known.
    pub(crate) fn memory_errors(&self) -> Option<f32> {
        self.ecc_errors.filter(|errors| *errors > 0.0)
    }
}
