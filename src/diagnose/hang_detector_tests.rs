//! Each symptom is reported, and a healthy run is not.

use std::collections::BTreeMap;

use super::*;
use crate::event::{Event, EventKind, Exit, GpuSample, LogFile, RankInfo, RunInfo};

const SECOND: i64 = 1000;
const MINUTE: i64 = 60 * SECOND;

/// A run on two hosts with two ranks each, all begun at 10 s but those of `late`.
struct SimulatedRun {
    state: RunState,
    offsets: BTreeMap<u32, u64>,
}

impl SimulatedRun {
    fn new(late: &[u32]) -> SimulatedRun {
        let rank = |rank: u32| RankInfo { rank, host: rank / 2, local_rank: rank % 2 };
        let mut scene = SimulatedRun { state: RunState::new(), offsets: BTreeMap::new() };
        scene.apply_event(
            SECOND,
            EventKind::RunStarted(RunInfo {
                run_id: "r1".to_owned(),
                hosts: ["gpu01", "gpu02"].map(str::to_owned).to_vec(),
                ranks: (0..4).map(rank).collect(),
                ..RunInfo::default()
            }),
        );
        for host in 0..2 {
            scene.apply_event(2 * SECOND, EventKind::HostConnected { host, clock_offset: 0, uncertainty: 1 });
            scene.apply_event(5 * SECOND, EventKind::LauncherStarted { host });
        }
        for rank in (0..4).filter(|rank| !late.contains(rank)) {
            scene.start_rank(10 * SECOND, rank);
        }
        scene
    }

    fn apply_event(&mut self, at: UnixMillis, kind: EventKind) {
        let seq = self.state.last_seq + 1;
        self.state.apply(&Event { seq, at, kind });
    }

    fn start_rank(&mut self, at: UnixMillis, rank: u32) {
        self.apply_event(at, EventKind::RankStarted { host: rank / 2, rank, restart: 0, started_at: at });
    }

    fn write_line(&mut self, at: UnixMillis, rank: u32, line: &str) {
        let text = format!("{line}\n");
        let offset = self.offsets.entry(rank).or_default();
        let file = LogFile::Rank { rank, restart: 0 };
        let start = *offset;
        *offset += text.len() as u64;
        self.apply_event(at, EventKind::log(rank / 2, file, start, text));
    }

    /// Every GPU does so from `from` to `to`.
    fn sample_gpus(&mut self, from: UnixMillis, to: UnixMillis, busy: f32, power: f32) {
        for at in (from..=to).step_by(5000) {
            for host in 0..2 {
                let gpu = |index| GpuSample {
                    index,
                    uuid: format!("GPU-{host}-{index}"),
                    utilization: Some(busy),
                    power: Some(power),
                    power_limit: Some(700.0),
                    ..GpuSample::default()
                };
                self.apply_event(at, EventKind::Gpus { host, gpus: (0..2).map(gpu).collect() });
            }
        }
    }

    fn detect_at(&self, now: UnixMillis, settings: HangSettings) -> Option<Hang> {
        match detect_hang(&self.state, settings, 0, now) {
            HangVerdict::Hanging(hang) => Some(hang),
            HangVerdict::Healthy => None,
            HangVerdict::Unknown => panic!("every host is connected"),
        }
    }

    /// The sign, the hosts and the ranks.
    fn symptom_at(&self, now: UnixMillis) -> Option<(HangSymptom, Vec<u32>, Vec<u32>)> {
        self.detect_at(now, HangSettings::default()).map(|hang| (hang.symptom, hang.hosts, hang.ranks))
    }
}

#[test]
fn unstarted_ranks_are_missing() {
    let mut scene = SimulatedRun::new(&[2, 3]);
    assert_eq!(scene.symptom_at(69 * SECOND), None, "they may still come");
    assert_eq!(scene.symptom_at(70 * SECOND), Some((HangSymptom::RankMissing, vec![1], vec![2, 3])));
    scene.start_rank(71 * SECOND, 2);
    assert_eq!(scene.symptom_at(131 * SECOND), Some((HangSymptom::RankMissing, vec![1], vec![3])));
    scene.start_rank(132 * SECOND, 3);
    assert_eq!(scene.symptom_at(133 * SECOND), None);
}

#[test]
fn host_without_assigned_ranks_is_missing() {
    let mut scene = SimulatedRun::new(&[0, 1, 2, 3]);
    scene.state.ranks.clear();
    scene.start_rank(10 * SECOND, 0);
    assert_eq!(scene.symptom_at(70 * SECOND), Some((HangSymptom::RankMissing, vec![1], vec![])));
}

#[test]
fn no_started_rank_is_late() {
    let scene = SimulatedRun::new(&[0, 1, 2, 3]);
    assert_eq!(scene.symptom_at(124 * SECOND), None);
    assert_eq!(scene.symptom_at(125 * SECOND), Some((HangSymptom::NotReady, vec![0, 1], vec![])));
}

#[test]
fn rank_lacking_common_last_line_is_missing() {
    let mut scene = SimulatedRun::new(&[]);
    for rank in 0..4 {
        scene.write_line(11 * SECOND, rank, &format!("rank {rank} loads"));
    }
    for rank in [0, 1, 2] {
        scene.write_line(20 * SECOND, rank, &format!("rank {rank} joins the group"));
    }
    assert_eq!(scene.symptom_at(20 * SECOND + SUSPICIOUS_SILENCE_MS - 1), None);
    let hang = scene.detect_at(20 * SECOND + SUSPICIOUS_SILENCE_MS, HangSettings::default()).expect("a hang");
    assert_eq!((hang.symptom, hang.ranks, hang.hosts), (HangSymptom::RankMissing, vec![3], vec![1]));
    assert_eq!(hang.evidence, ["3 ranks wrote last: rank 0 joins the group", "rank 3 has not; it wrote last: rank 3 loads"]);
}

#[test]
fn slower_rank_at_earlier_line_is_missing() {
    let mut scene = SimulatedRun::new(&[]);
    for rank in 0..3 {
        scene.write_line(11 * SECOND, rank, &format!("rank {rank} loads"));
        scene.write_line(12 * SECOND, rank, &format!("rank {rank} joins the group"));
    }
    scene.write_line(20 * SECOND, 3, "rank 3 loads");
    assert_eq!(scene.symptom_at(20 * SECOND + SUSPICIOUS_SILENCE_MS), Some((HangSymptom::RankMissing, vec![1], vec![3])));
}

#[test]
fn sole_logging_rank_blames_no_other() {
    let mut scene = SimulatedRun::new(&[]);
    for rank in 0..4 {
        scene.write_line(11 * SECOND, rank, &format!("rank {rank} is there"));
    }
    for step in 0..60 {
        scene.write_line(20 * SECOND + step, 0, &format!("step {step} loss 1.5"));
    }
    assert_eq!(scene.symptom_at(20 * SECOND + UNEXPLAINED_SILENCE_MS + 100), Some((HangSymptom::Silent, vec![0, 1], vec![])));
    // Even if the times of the ranks' output are unknown, as after an attach.
    for rank in scene.state.ranks.values_mut() {
        rank.last_output_at = 20 * SECOND;
    }
    assert_eq!(scene.symptom_at(20 * SECOND + UNEXPLAINED_SILENCE_MS + 100), Some((HangSymptom::Silent, vec![0, 1], vec![])));
}

#[test]
fn silence_hangs_if_gpus_spin_not_if_working() {
    let silent = 60 * SECOND;
    let reported = |busy: f32, power: f32, now: UnixMillis| {
        let mut scene = SimulatedRun::new(&[]);
        scene.write_line(silent, 0, "step 1 loss 2.0");
        scene.sample_gpus(20 * SECOND, silent, 99.0, 600.0);
        scene.sample_gpus(silent + 5000, now, busy, power);
        scene.symptom_at(now).map(|(sign, ..)| sign)
    };
    assert_eq!(reported(100.0, 130.0, silent + SUSPICIOUS_SILENCE_MS - SECOND), None);
    assert_eq!(reported(100.0, 130.0, silent + SUSPICIOUS_SILENCE_MS), Some(HangSymptom::Spinning));
    assert_eq!(reported(100.0, 600.0, silent + UNEXPLAINED_SILENCE_MS), None, "they work");
    assert_eq!(reported(2.0, 600.0, silent + UNEXPLAINED_SILENCE_MS), None, "power is work, at any utilisation");
    assert_eq!(reported(0.0, 80.0, silent + SUSPICIOUS_SILENCE_MS), None, "a checkpoint is written");
    assert_eq!(reported(0.0, 80.0, silent + UNEXPLAINED_SILENCE_MS), Some(HangSymptom::Silent), "a weak sign");
}

#[test]
fn allowed_silence_follows_setting_and_history() {
    let mut scene = SimulatedRun::new(&[]);
    scene.write_line(20 * SECOND, 0, "step 1 loss 2.0");
    let declared = HangSettings { hang_after: Some(40 * MINUTE), has_ready_line: false };
    assert_eq!(scene.detect_at(20 * SECOND + 39 * MINUTE, declared), None);
    assert_eq!(scene.detect_at(20 * SECOND + 40 * MINUTE, declared).map(|hang| hang.symptom), Some(HangSymptom::Silent));
    assert!(scene.symptom_at(20 * SECOND + UNEXPLAINED_SILENCE_MS).is_some());
    // It came back by itself after 10 min: that was no hang, and neither is the next one.
    scene.write_line(20 * SECOND + 10 * MINUTE, 0, "step 2 loss 1.9");
    assert_eq!(scene.symptom_at(20 * SECOND + 39 * MINUTE), None);
    assert!(scene.symptom_at(20 * SECOND + 40 * MINUTE).is_some());
}

#[test]
fn exited_rank_with_others_spinning_is_hang() {
    let gone = |code| {
        let mut scene = SimulatedRun::new(&[]);
        scene.write_line(20 * SECOND, 0, "step 1 loss 2.0");
        scene.write_line(60 * SECOND, 0, "a peer has left");
        scene.sample_gpus(20 * SECOND, 40 * SECOND, 99.0, 600.0);
        let exit = Exit::Code(code);
        scene.apply_event(
            60 * SECOND,
            EventKind::RankExited { host: 1, rank: 3, restart: 0, exit, ended_at: 60 * SECOND, uncertainty: 1, stopped: None },
        );
        scene.sample_gpus(60 * SECOND, 60 * SECOND + UNEXPLAINED_SILENCE_MS, 100.0, 130.0);
        scene
    };
    let failed = gone(1);
    assert_eq!(failed.symptom_at(119 * SECOND), None);
    assert_eq!(failed.symptom_at(120 * SECOND), Some((HangSymptom::RankExited, vec![1], vec![3])));
    let declared = HangSettings { hang_after: Some(10 * MINUTE), has_ready_line: false };
    assert_eq!(failed.detect_at(11 * MINUTE - 1, declared), None, "the inventory says how long a silence may be");
    assert!(failed.detect_at(11 * MINUTE, declared).is_some());
    // A rank that ended well may have left the evaluation to another.
    let done = gone(0);
    assert_eq!(done.symptom_at(60 * SECOND + SUSPICIOUS_SILENCE_MS - 1), None);
    assert_eq!(done.symptom_at(60 * SECOND + SUSPICIOUS_SILENCE_MS), Some((HangSymptom::RankExited, vec![1], vec![3])));
    // The others continue without it: they do not wait for it.
    let mut left = gone(1);
    left.write_line(100 * SECOND, 0, "step 2 loss 1.9");
    assert_eq!(left.symptom_at(100 * SECOND + SUSPICIOUS_SILENCE_MS - 1), None);
    assert_eq!(left.symptom_at(100 * SECOND + SUSPICIOUS_SILENCE_MS).map(|(sign, ..)| sign), Some(HangSymptom::Spinning));
}

#[test]
fn foreign_or_unseen_gpus_indicate_no_hang() {
    let silent = 60 * SECOND;
    let now = silent + SUSPICIOUS_SILENCE_MS;
    let spins = || {
        let mut scene = SimulatedRun::new(&[]);
        scene.write_line(silent, 0, "loads the data");
        scene.sample_gpus(silent, now, 95.0, 140.0);
        scene
    };
    assert_eq!(spins().symptom_at(now).map(|(sign, ..)| sign), Some(HangSymptom::Spinning));
    let mut foreign = spins();
    for host in 0..2 {
        let gpu = format!("GPU-{host}-0");
        let process = crate::event::GpuProcess { gpu, belongs_to_run: false, ..crate::event::GpuProcess::default() };
        foreign.apply_event(now, EventKind::GpuProcesses { host, processes: vec![process] });
    }
    assert_eq!(foreign.symptom_at(now), None);
    let mut blind = spins();
    blind.state.hosts[0].gpu_history.clear();
    assert_eq!(blind.symptom_at(now), None, "a GPU without samples may work");
    let line =
        HangDetector { state: &blind.state, settings: HangSettings::default(), connected_since: 0, now }.gpu_activity().1.expect("words");
    assert!(line.starts_with("2 of 2 GPUs are busy") && line.ends_with("; those of gpu01 are not seen"), "{line}");
}

#[test]
fn silence_while_disconnected_is_not_learned() {
    let mut scene = SimulatedRun::new(&[]);
    scene.write_line(20 * SECOND, 0, "step 1 loss 2.0");
    scene.apply_event(21 * SECOND, EventKind::HostLost { host: 0, error: String::new(), hint: String::new(), will_retry: true });
    scene.apply_event(20 * MINUTE, EventKind::HostConnected { host: 0, clock_offset: 0, uncertainty: 1 });
    scene.write_line(20 * MINUTE + SECOND, 0, "step 2 loss 1.9");
    assert_eq!(scene.state.output_activity.longest_silence, SECOND);
}

#[test]
fn missing_ready_line_is_late() {
    let mut scene = SimulatedRun::new(&[]);
    let marked = HangSettings { hang_after: None, has_ready_line: true };
    scene.write_line(5 * SECOND + READY_TIMEOUT_MS - SECOND, 0, "loading shard 7");
    assert_eq!(scene.detect_at(5 * SECOND + READY_TIMEOUT_MS - 1, marked), None);
    assert_eq!(scene.detect_at(5 * SECOND + READY_TIMEOUT_MS, marked).map(|hang| hang.symptom), Some(HangSymptom::NotReady));
    let mut trains = SimulatedRun::new(&[]);
    trains.write_line(5 * SECOND + READY_TIMEOUT_MS - SECOND, 0, "step 1 loss 2.0");
    assert_eq!(trains.detect_at(5 * SECOND + READY_TIMEOUT_MS, marked), None, "it trains, with or without a ready line");
    scene.apply_event(5 * SECOND + READY_TIMEOUT_MS, EventKind::Ready);
    assert_eq!(scene.detect_at(5 * SECOND + READY_TIMEOUT_MS + 1, marked), None);
}

#[test]
fn disconnected_or_stopping_run_is_unknown() {
    let scene = |kind: EventKind| {
        let mut scene = SimulatedRun::new(&[]);
        scene.apply_event(20 * SECOND, kind);
        detect_hang(&scene.state, HangSettings::default(), 0, 10 * UNEXPLAINED_SILENCE_MS)
    };
    assert_eq!(scene(EventKind::HostLost { host: 0, error: String::new(), hint: String::new(), will_retry: true }), HangVerdict::Unknown);
    assert_eq!(scene(EventKind::GoalChanged { goal: RunGoal::Stop, reason: String::new() }), HangVerdict::Unknown);
    assert!(matches!(scene(EventKind::Ready), HangVerdict::Hanging(_)));
    // After a suspend of the laptop the silence counts from zero.
    let slept = SimulatedRun::new(&[]);
    assert_eq!(
        detect_hang(&slept.state, HangSettings::default(), 10 * UNEXPLAINED_SILENCE_MS - SECOND, 10 * UNEXPLAINED_SILENCE_MS),
        HangVerdict::Healthy
    );
}

#[test]
fn hang_finding_appears_in_both_languages() {
    use crate::diagnose::{Evidence, diagnose_run};
    use crate::text::translation::Lang;
    let mut scene = SimulatedRun::new(&[2, 3]);
    let evidence = Evidence::with_built_in_rules();
    assert_eq!(diagnose_run(&evidence, &scene.state), []);
    let hang = scene.detect_at(90 * SECOND, HangSettings::default()).expect("a hang");
    scene.apply_event(90 * SECOND, EventKind::Hang(hang));
    let found = diagnose_run(&evidence, &scene.state);
    assert_eq!((found[0].rule.as_str(), found[0].hosts.as_slice(), found[0].ranks.as_slice()), ("hang-missing", &[1][..], &[2, 3][..]));
    assert_eq!(found[0].summary(Lang::En), "it has not arrived; the others have waited for 80 s");
    assert!(found[0].summary(Lang::Zh).contains("80 s"));
    scene.apply_event(91 * SECOND, EventKind::HangEnded);
    assert_eq!(diagnose_run(&evidence, &scene.state), []);
}
