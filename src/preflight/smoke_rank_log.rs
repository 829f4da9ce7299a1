//! How far a rank of the smoke test came, read from its log.

use serde::Deserialize;

/// A line of the script.
#[derive(Debug, Deserialize)]
#[serde(tag = "smoke", rename_all = "lowercase")]
enum SmokeEvent {
    #[serde(rename = "skip")]
    Skipped {
        #[serde(rename = "why")]
        missing: String,
    },
    Imported {
        torch: String,
        gpus: u32,
    },
    #[serde(rename = "store")]
    StoreReady,
    Arrived,
    #[serde(rename = "waiting")]
    WaitingForRanks {
        missing: Vec<u32>,
    },
    #[serde(rename = "group")]
    GroupReady {
        backend: String,
    },
    #[serde(rename = "ring")]
    RingSpeed {
        gbps: f64,
    },
    #[serde(rename = "trying")]
    TestingPair {
        pair: (usize, usize),
    },
    #[serde(rename = "pair")]
    PairSpeed {
        pair: (usize, usize),
        gbps: f64,
    },
    Done {
        #[serde(rename = "at")]
        seconds: f64,
    },
    Failed {
        phase: String,
        #[serde(rename = "why")]
        reason: String,
    },
}

/// How far a rank came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum SmokeStage {
    #[default]
    NotStarted,
    Imported,
    StoreReady,
    Arrived,
    GroupReady,
    Done,
}

/// What one rank reported.
#[derive(Debug, Clone, Default)]
pub(crate) struct SmokeRankLog {
    /// The index of its host.
    pub host: usize,
    pub(super) stage: SmokeStage,
    pub(super) skip_reason: Option<String>,
    pub(super) torch: Option<(String, u32)>,
    pub(super) missing_ranks: Vec<u32>,
    pub(super) backend: Option<String>,
    pub(super) ring_gbps: Option<f64>,
    pub(super) testing_pair: Option<(usize, usize)>,
    pub(super) pair_gbps: Vec<((usize, usize), f64)>,
    pub(super) seconds: f64,
    pub(super) failure: Option<(String, String)>,
    pub(super) other_lines: Vec<String>,
}

/// What begins a line of the script.
const LINE_PREFIX: &str = "orch-smoke ";

/// How many lines of one rank are read.
const MAX_LINES: usize = 100_000;

/// The longest line of the script.
const MAX_LINE_BYTES: usize = 20_000;

impl SmokeRankLog {
    /// Reads a rank's log. Lines that are not the script's, or not right, are passed over.
    pub(crate) fn parse(host: usize, log: &str) -> SmokeRankLog {
        let mut rank_log = SmokeRankLog { host, ..SmokeRankLog::default() };
        for line in log.lines().take(MAX_LINES) {
            match line.strip_prefix(LINE_PREFIX).filter(|text| text.len() <= MAX_LINE_BYTES).map(serde_json::from_str) {
                Some(Ok(line)) => rank_log.apply_event(line),
                Some(Err(_)) => {}
                None if line.trim().is_empty() => {}
                None => {
                    rank_log.other_lines.push(line.chars().take(300).collect());
                    if rank_log.other_lines.len() > 4 {
                        rank_log.other_lines.remove(0);
                    }
                }
            }
        }
        rank_log
    }

    fn apply_event(&mut self, line: SmokeEvent) {
        let sound = |gbps: f64| gbps.is_finite() && gbps >= 0.0;
        match line {
            SmokeEvent::Skipped { missing: why } => self.skip_reason = Some(why.chars().take(60).collect()),
            SmokeEvent::Imported { torch, gpus } => {
                self.torch = Some((torch.chars().take(60).collect(), gpus));
                self.advance_to(SmokeStage::Imported);
            }
            SmokeEvent::StoreReady => self.advance_to(SmokeStage::StoreReady),
            SmokeEvent::Arrived => self.advance_to(SmokeStage::Arrived),
            SmokeEvent::WaitingForRanks { missing } => self.missing_ranks = missing,
            SmokeEvent::GroupReady { backend } => {
                self.backend = Some(backend.chars().take(20).collect());
                self.advance_to(SmokeStage::GroupReady);
            }
            SmokeEvent::RingSpeed { gbps } if sound(gbps) => self.ring_gbps = Some(self.ring_gbps.map_or(gbps, |best| best.max(gbps))),
            SmokeEvent::TestingPair { pair } => self.testing_pair = Some(pair),
            SmokeEvent::PairSpeed { pair, gbps } if sound(gbps) && self.pair_gbps.len() < 1024 => {
                self.testing_pair = None;
                self.pair_gbps.push((pair, gbps));
            }
            SmokeEvent::RingSpeed { .. } | SmokeEvent::PairSpeed { .. } => {}
            SmokeEvent::Done { seconds: at } => {
                self.seconds = if at.is_finite() { at } else { 0.0 };
                self.advance_to(SmokeStage::Done);
            }
            SmokeEvent::Failed { phase, reason: why } => {
                self.failure = Some((phase.chars().take(20).collect(), why.chars().take(600).collect()))
            }
        }
    }

    fn advance_to(&mut self, reached: SmokeStage) {
        self.stage = self.stage.max(reached);
    }
}
