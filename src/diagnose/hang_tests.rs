//! Each sign is told, and what is healthy is not.

use super::*;
use crate::event::{Event, EventKind, Exit, GpuSample, LogFile, RankInfo, RunInfo};
use bytes::Bytes;

const SECOND: i64 = 1000;
const MINUTE: i64 = 60 * SECOND;

/// A run on two hosts with two ranks each, all begun at 10 s but those of `late`.
struct Scene {
    state: RunState,
    offsets: BTreeMap<u32, u64>,
}

impl Scene {
    fn new(late: &[u32]) -> Scene {
        let rank = |rank: u32| RankInfo { rank, host: rank / 2, local_rank: rank % 2 };
        let mut scene = Scene { state: RunState::new(), offsets: BTreeMap::new() };
        scene.tell(
            SECOND,
            EventKind::RunStarted(RunInfo {
                run: "r1".to_owned(),
                hosts: ["gpu01", "gpu02"].map(str::to_owned).to_vec(),
                ranks: (0..4).map(rank).collect(),
                ..RunInfo::default()
            }),
        );
        for host in 0..2 {
            scene.tell(2 * SECOND, EventKind::HostConnected { host, clock_offset: 0, uncertainty: 1 });
            scene.tell(5 * SECOND, EventKind::NodeStarted { host });
        }
        for rank in (0..4).filter(|rank| !late.contains(rank)) {
            scene.begins(10 * SECOND, rank);
        }
        scene
    }

    fn tell(&mut self, at: Millis, kind: EventKind) {
        let seq = self.state.seq + 1;
        self.state.apply(&Event { seq, at, kind });
    }

    fn begins(&mut self, at: Millis, rank: u32) {
        self.tell(at, EventKind::RankStarted { host: rank / 2, rank, restart: 0, when: at });
    }

    fn writes(&mut self, at: Millis, rank: u32, line: &str) {
        let bytes = Bytes::from(format!("{line}\n"));
        let offset = self.offsets.entry(rank).or_default();
        let file = LogFile::Rank { rank, restart: 0 };
        let kind = EventKind::Log { host: rank / 2, file, offset: *offset, len: bytes.len() as u64, bytes: bytes.clone() };
        *offset += bytes.len() as u64;
        self.tell(at, kind);
    }

    /// Every GPU does so from `from` to `to`.
    fn gpus(&mut self, from: Millis, to: Millis, busy: f32, power: f32) {
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
                self.tell(at, EventKind::Gpus { host, gpus: (0..2).map(gpu).collect() });
            }
        }
    }

    fn at(&self, now: Millis, terms: Terms) -> Option<Hang> {
        match judge(&self.state, terms, 0, now) {
            Verdict::Hangs(hang) => Some(hang),
            Verdict::Fine => None,
            Verdict::Unknown => panic!("every host is heard"),
        }
    }

    /// The sign, the hosts and the ranks.
    fn sign(&self, now: Millis) -> Option<(Sign, Vec<u32>, Vec<u32>)> {
        self.at(now, Terms::default()).map(|hang| (hang.sign, hang.hosts, hang.ranks))
    }
}

#[test]
fn a_host_whose_ranks_do_not_begin_is_waited_for() {
    let mut scene = Scene::new(&[2, 3]);
    assert_eq!(scene.sign(69 * SECOND), None, "they may still come");
    assert_eq!(scene.sign(70 * SECOND), Some((Sign::Missing, vec![1], vec![2, 3])));
    scene.begins(71 * SECOND, 2);
    assert_eq!(scene.sign(131 * SECOND), Some((Sign::Missing, vec![1], vec![3])));
    scene.begins(132 * SECOND, 3);
    assert_eq!(scene.sign(133 * SECOND), None);
}

#[test]
fn a_rendezvous_that_hands_ranks_out_is_waited_for_by_host() {
    let mut scene = Scene::new(&[0, 1, 2, 3]);
    scene.state.ranks.clear();
    scene.begins(10 * SECOND, 0);
    assert_eq!(scene.sign(70 * SECOND), Some((Sign::Missing, vec![1], vec![])));
}

#[test]
fn no_rank_at_all_is_late() {
    let scene = Scene::new(&[0, 1, 2, 3]);
    assert_eq!(scene.sign(124 * SECOND), None);
    assert_eq!(scene.sign(125 * SECOND), Some((Sign::Late, vec![0, 1], vec![])));
}

#[test]
fn a_rank_that_has_not_written_what_the_others_wrote_is_waited_for() {
    let mut scene = Scene::new(&[]);
    for rank in 0..4 {
        scene.writes(11 * SECOND, rank, &format!("rank {rank} loads"));
    }
    for rank in [0, 1, 2] {
        scene.writes(20 * SECOND, rank, &format!("rank {rank} joins the group"));
    }
    assert_eq!(scene.sign(20 * SECOND + QUIET - 1), None);
    let hang = scene.at(20 * SECOND + QUIET, Terms::default()).expect("a hang");
    assert_eq!((hang.sign, hang.ranks, hang.hosts), (Sign::Missing, vec![3], vec![1]));
    assert_eq!(hang.evidence, ["3 ranks wrote last: rank 0 joins the group", "rank 3 has not; it wrote last: rank 3 loads"]);
}

#[test]
fn a_rank_that_comes_later_to_what_the_others_did_before_is_behind() {
    let mut scene = Scene::new(&[]);
    for rank in 0..3 {
        scene.writes(11 * SECOND, rank, &format!("rank {rank} loads"));
        scene.writes(12 * SECOND, rank, &format!("rank {rank} joins the group"));
    }
    scene.writes(20 * SECOND, 3, "rank 3 loads");
    assert_eq!(scene.sign(20 * SECOND + QUIET), Some((Sign::Missing, vec![1], vec![3])));
}

#[test]
fn the_rank_that_writes_for_all_is_not_behind() {
    let mut scene = Scene::new(&[]);
    for rank in 0..4 {
        scene.writes(11 * SECOND, rank, &format!("rank {rank} is there"));
    }
    for step in 0..60 {
        scene.writes(20 * SECOND + step, 0, &format!("step {step} loss 1.5"));
    }
    assert_eq!(scene.sign(20 * SECOND + LONG + 100), Some((Sign::Silent, vec![0, 1], vec![])));
    // Though nothing tells when who wrote, as after an attach.
    for rank in scene.state.ranks.values_mut() {
        rank.spoke = 20 * SECOND;
    }
    assert_eq!(scene.sign(20 * SECOND + LONG + 100), Some((Sign::Silent, vec![0, 1], vec![])));
}

#[test]
fn silence_is_a_hang_when_the_gpus_spin_and_none_when_they_work() {
    let silent = 60 * SECOND;
    let told = |busy: f32, power: f32, now: Millis| {
        let mut scene = Scene::new(&[]);
        scene.writes(silent, 0, "step 1 loss 2.0");
        scene.gpus(20 * SECOND, silent, 99.0, 600.0);
        scene.gpus(silent + 5000, now, busy, power);
        scene.sign(now).map(|(sign, ..)| sign)
    };
    assert_eq!(told(100.0, 130.0, silent + QUIET - SECOND), None);
    assert_eq!(told(100.0, 130.0, silent + QUIET), Some(Sign::Spinning));
    assert_eq!(told(100.0, 600.0, silent + LONG), None, "they work");
    assert_eq!(told(2.0, 600.0, silent + LONG), None, "power is work, whatever the utilisation says");
    assert_eq!(told(0.0, 80.0, silent + QUIET), None, "a checkpoint is written");
    assert_eq!(told(0.0, 80.0, silent + LONG), Some(Sign::Silent), "a weak sign");
}

#[test]
fn a_healthy_silence_may_be_as_long_as_it_is_said_or_was_before() {
    let mut scene = Scene::new(&[]);
    scene.writes(20 * SECOND, 0, "step 1 loss 2.0");
    let declared = Terms { after: Some(40 * MINUTE), marked: false };
    assert_eq!(scene.at(20 * SECOND + 39 * MINUTE, declared), None);
    assert_eq!(scene.at(20 * SECOND + 40 * MINUTE, declared).map(|hang| hang.sign), Some(Sign::Silent));
    assert!(scene.sign(20 * SECOND + LONG).is_some());
    // It came back by itself after 10 min: that was no hang, and neither is the next one.
    scene.writes(20 * SECOND + 10 * MINUTE, 0, "step 2 loss 1.9");
    assert_eq!(scene.sign(20 * SECOND + 39 * MINUTE), None);
    assert!(scene.sign(20 * SECOND + 40 * MINUTE).is_some());
}

#[test]
fn a_rank_that_is_gone_while_the_others_spin() {
    let gone = |code| {
        let mut scene = Scene::new(&[]);
        scene.writes(20 * SECOND, 0, "step 1 loss 2.0");
        scene.writes(60 * SECOND, 0, "a peer has left");
        scene.gpus(20 * SECOND, 40 * SECOND, 99.0, 600.0);
        let exit = Exit::Code(code);
        scene.tell(60 * SECOND, EventKind::RankExited { host: 1, rank: 3, restart: 0, exit, when: 60 * SECOND, uncertainty: 1 });
        scene.gpus(60 * SECOND, 60 * SECOND + LONG, 100.0, 130.0);
        scene
    };
    let failed = gone(1);
    assert_eq!(failed.sign(119 * SECOND), None);
    assert_eq!(failed.sign(120 * SECOND), Some((Sign::Gone, vec![1], vec![3])));
    let declared = Terms { after: Some(10 * MINUTE), marked: false };
    assert_eq!(failed.at(11 * MINUTE - 1, declared), None, "the inventory says how long a silence may be");
    assert!(failed.at(11 * MINUTE, declared).is_some());
    // Who ended well may have left the evaluation to another.
    let done = gone(0);
    assert_eq!(done.sign(60 * SECOND + QUIET - 1), None);
    assert_eq!(done.sign(60 * SECOND + QUIET), Some((Sign::Gone, vec![1], vec![3])));
    // They go on without it: it is not what they wait for.
    let mut left = gone(1);
    left.writes(100 * SECOND, 0, "step 2 loss 1.9");
    assert_eq!(left.sign(100 * SECOND + QUIET - 1), None);
    assert_eq!(left.sign(100 * SECOND + QUIET).map(|(sign, ..)| sign), Some(Sign::Spinning));
}

#[test]
fn gpus_of_strangers_and_of_hosts_that_are_not_seen_speak_for_no_hang() {
    let silent = 60 * SECOND;
    let now = silent + QUIET;
    let spins = || {
        let mut scene = Scene::new(&[]);
        scene.writes(silent, 0, "loads the data");
        scene.gpus(silent, now, 95.0, 140.0);
        scene
    };
    assert_eq!(spins().sign(now).map(|(sign, ..)| sign), Some(Sign::Spinning));
    let mut foreign = spins();
    for host in 0..2 {
        let gpu = format!("GPU-{host}-0");
        let process = crate::event::GpuProcess { gpu, ours: false, ..crate::event::GpuProcess::default() };
        foreign.tell(now, EventKind::GpuProcesses { host, processes: vec![process] });
    }
    assert_eq!(foreign.sign(now), None);
    let mut blind = spins();
    blind.state.hosts[0].traces.clear();
    assert_eq!(blind.sign(now), None, "who is not seen may work");
    let line = Look { state: &blind.state, terms: Terms::default(), heard: 0, now }.gpus().1.expect("words");
    assert!(line.starts_with("2 of 2 GPUs are busy") && line.ends_with("; those of gpu01 are not seen"), "{line}");
}

#[test]
fn a_silence_while_nobody_was_heard_is_not_learned_from() {
    let mut scene = Scene::new(&[]);
    scene.writes(20 * SECOND, 0, "step 1 loss 2.0");
    scene.tell(21 * SECOND, EventKind::HostLost { host: 0, error: String::new(), retrying: true });
    scene.tell(20 * MINUTE, EventKind::HostConnected { host: 0, clock_offset: 0, uncertainty: 1 });
    scene.writes(20 * MINUTE + SECOND, 0, "step 2 loss 1.9");
    assert_eq!(scene.state.pace.longest, SECOND);
}

#[test]
fn a_start_without_the_line_that_marks_it_is_late() {
    let mut scene = Scene::new(&[]);
    let marked = Terms { after: None, marked: true };
    scene.writes(5 * SECOND + READY - SECOND, 0, "loading shard 7");
    assert_eq!(scene.at(5 * SECOND + READY - 1, marked), None);
    assert_eq!(scene.at(5 * SECOND + READY, marked).map(|hang| hang.sign), Some(Sign::Late));
    let mut trains = Scene::new(&[]);
    trains.writes(5 * SECOND + READY - SECOND, 0, "step 1 loss 2.0");
    assert_eq!(trains.at(5 * SECOND + READY, marked), None, "it trains, whatever marks it");
    scene.tell(5 * SECOND + READY, EventKind::Ready);
    assert_eq!(scene.at(5 * SECOND + READY + 1, marked), None);
}

#[test]
fn nothing_is_said_of_what_is_not_heard() {
    let scene = |kind: EventKind| {
        let mut scene = Scene::new(&[]);
        scene.tell(20 * SECOND, kind);
        judge(&scene.state, Terms::default(), 0, 10 * LONG)
    };
    assert_eq!(scene(EventKind::HostLost { host: 0, error: String::new(), retrying: true }), Verdict::Unknown);
    assert_eq!(scene(EventKind::GoalChanged { goal: Goal::Stop, why: String::new() }), Verdict::Unknown);
    assert!(matches!(scene(EventKind::Ready), Verdict::Hangs(_)));
    // One who slept hears anew.
    let slept = Scene::new(&[]);
    assert_eq!(judge(&slept.state, Terms::default(), 10 * LONG - SECOND, 10 * LONG), Verdict::Fine);
}

#[test]
fn a_hang_is_explained_in_both_languages_until_the_run_ends_well() {
    use crate::diagnose::{Evidence, Lang, findings};
    let mut scene = Scene::new(&[2, 3]);
    let evidence = Evidence::built_in();
    assert_eq!(findings(&evidence, &scene.state), []);
    let hang = scene.at(90 * SECOND, Terms::default()).expect("a hang");
    scene.tell(90 * SECOND, EventKind::Hang(hang));
    let found = findings(&evidence, &scene.state);
    assert_eq!((found[0].rule.as_str(), found[0].hosts.as_slice(), found[0].ranks.as_slice()), ("hang-missing", &[1][..], &[2, 3][..]));
    assert_eq!(found[0].what(Lang::En), "it has not come; the others have waited for 80 s");
    assert!(found[0].what(Lang::Zh).contains("80 s"));
    scene.tell(91 * SECOND, EventKind::HangOver);
    assert_eq!(findings(&evidence, &scene.state), []);
}
