//! `smoke`: the all-reduce of `check --smoke`. It is a run of its own (`assets/smoke.py` on every host); here is what its lines say, and the
//! judgement over all ranks. It is judged when it has ended, and not with the other checks.
//!
//! Uses nothing but cells.

use serde::Deserialize;

use super::scene::Scene;
use super::{Area, Cell, Check};

/// Its stable name.
pub const NAME: &str = "smoke";

/// See its `looks`.
pub const CHECK: Check = Check {
    name: NAME,
    area: Area::Network,
    looks: "only with --smoke: an all-reduce of about 30 s over all hosts in the image (NCCL, without GPUs gloo): who does not arrive, what stops, how fast the ring and each pair of hosts are",
    needs: &[],
    judge,
};

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    scene.each(|_| Cell::skipped("it runs with --smoke"))
}

/// What each process runs: the job's interpreter with our script, or the word that there is none. `None` stands for the interpreter.
pub const WORDS: [Option<&str>; 6] = [
    Some("sh"),
    Some("-c"),
    Some(
        "command -v \"$1\" >/dev/null 2>&1 || { echo 'orch-smoke {\"smoke\": \"skip\", \"why\": \"python\"}'; exit 0; }\nexec \"$1\" -u -c \"$2\"",
    ),
    Some("smoke"),
    None,
    Some(include_str!("../../../assets/smoke.py")),
];

/// The ports beside the job's at which a smoke may meet, the first one before the others.
pub fn near(port: u16) -> Vec<u16> {
    (1..=8).filter_map(|n| port.checked_add(n)).chain((1..=8).filter_map(|n| port.checked_sub(n)).filter(|p| *p >= 1024)).take(8).collect()
}

/// A line of the script.
#[derive(Debug, Deserialize)]
#[serde(tag = "smoke", rename_all = "lowercase")]
enum Line {
    Skip { why: String },
    Imported { torch: String, gpus: u32 },
    Store,
    Arrived,
    Waiting { missing: Vec<u32> },
    Group { backend: String },
    Ring { gbps: f64 },
    Trying { pair: (usize, usize) },
    Pair { pair: (usize, usize), gbps: f64 },
    Done { at: f64 },
    Failed { phase: String, why: String },
}

/// How far a rank came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Reached {
    #[default]
    Nothing,
    Imported,
    Store,
    Arrived,
    Group,
    Done,
}

/// What one rank told.
#[derive(Debug, Clone, Default)]
pub struct Heard {
    /// The index of its host.
    pub host: usize,
    reached: Reached,
    skip: Option<String>,
    torch: Option<(String, u32)>,
    missing: Vec<u32>,
    backend: Option<String>,
    ring: Option<f64>,
    trying: Option<(usize, usize)>,
    pairs: Vec<((usize, usize), f64)>,
    took: f64,
    failed: Option<(String, String)>,
    last: Vec<String>,
}

/// What begins a line of the script.
const MARK: &str = "orch-smoke ";
/// How many lines of one rank are read.
const LINES: usize = 100_000;
/// The longest line of the script.
const LONGEST: usize = 20_000;

impl Heard {
    /// Reads a rank's log. Lines that are not the script's, or not right, are passed over.
    pub fn read(host: usize, log: &str) -> Heard {
        let mut heard = Heard { host, ..Heard::default() };
        for line in log.lines().take(LINES) {
            match line.strip_prefix(MARK).filter(|text| text.len() <= LONGEST).map(serde_json::from_str) {
                Some(Ok(line)) => heard.take(line),
                Some(Err(_)) => {}
                None if line.trim().is_empty() => {}
                None => {
                    heard.last.push(line.chars().take(300).collect());
                    if heard.last.len() > 4 {
                        heard.last.remove(0);
                    }
                }
            }
        }
        heard
    }

    fn take(&mut self, line: Line) {
        let sound = |gbps: f64| gbps.is_finite() && gbps >= 0.0;
        match line {
            Line::Skip { why } => self.skip = Some(why.chars().take(60).collect()),
            Line::Imported { torch, gpus } => {
                self.torch = Some((torch.chars().take(60).collect(), gpus));
                self.come(Reached::Imported);
            }
            Line::Store => self.come(Reached::Store),
            Line::Arrived => self.come(Reached::Arrived),
            Line::Waiting { missing } => self.missing = missing,
            Line::Group { backend } => {
                self.backend = Some(backend.chars().take(20).collect());
                self.come(Reached::Group);
            }
            Line::Ring { gbps } if sound(gbps) => self.ring = Some(self.ring.map_or(gbps, |best| best.max(gbps))),
            Line::Trying { pair } => self.trying = Some(pair),
            Line::Pair { pair, gbps } if sound(gbps) && self.pairs.len() < 1024 => {
                self.trying = None;
                self.pairs.push((pair, gbps));
            }
            Line::Ring { .. } | Line::Pair { .. } => {}
            Line::Done { at } => {
                self.took = if at.is_finite() { at } else { 0.0 };
                self.come(Reached::Done);
            }
            Line::Failed { phase, why } => self.failed = Some((phase.chars().take(20).collect(), why.chars().take(600).collect())),
        }
    }

    fn come(&mut self, reached: Reached) {
        self.reached = self.reached.max(reached);
    }
}

/// What is known beside the ranks' words.
#[derive(Debug, Clone, Copy)]
pub struct Terms<'a> {
    /// The hosts' names.
    pub hosts: &'a [String],
    /// Where they meet: `10.0.0.1:29501`.
    pub store: &'a str,
    /// What holds torch: `image`, `host`.
    pub place: &'a str,
    /// Whether the ranks were given GPUs.
    pub gpus: bool,
    /// Why the run failed, if it did.
    pub why: &'a str,
}

/// A cell for each host, from what every rank told, in the order of the ranks.
pub fn judged(terms: &Terms<'_>, ranks: &[Heard]) -> Vec<Cell> {
    if ranks.iter().any(|rank| rank.skip.is_some()) {
        return lacking(terms, ranks);
    }
    if !ranks.is_empty() && ranks.iter().all(|rank| rank.reached == Reached::Done) {
        return measured(terms, ranks);
    }
    let Some(first) = ranks.first() else { return every(terms, |_| Cell::fail(begun(terms), "")) };
    if ranks.iter().all(|rank| rank.reached == Reached::Nothing && rank.failed.is_none() && rank.last.is_empty()) {
        return every(terms, |_| Cell::fail(begun(terms), ""));
    }
    if first.reached < Reached::Store && first.failed.is_some() {
        // Without the store nobody can arrive: the others are not to blame.
        return every(terms, |host| if host == first.host { absent(terms, first, "") } else { Cell::skipped("the store did not begin") });
    }
    if ranks.iter().any(|rank| rank.reached < Reached::Arrived) && ranks.iter().all(|rank| rank.reached < Reached::Group) {
        return waiting(terms, ranks);
    }
    stopped(terms, ranks)
}

fn every(terms: &Terms<'_>, cell: impl FnMut(usize) -> Cell) -> Vec<Cell> {
    (0..terms.hosts.len()).map(cell).collect()
}

fn begun(terms: &Terms<'_>) -> String {
    format!("it did not begin: {}", if terms.why.is_empty() { "no rank told anything" } else { terms.why })
}

fn name<'a>(terms: &Terms<'a>, host: usize) -> &'a str {
    terms.hosts.get(host).map_or("?", String::as_str)
}

fn lacking(terms: &Terms<'_>, ranks: &[Heard]) -> Vec<Cell> {
    let all = ranks.iter().all(|rank| rank.skip.is_some());
    every(terms, |host| {
        let skip = ranks.iter().filter(|rank| rank.host == host).find_map(|rank| rank.skip.as_deref());
        let text = |what: &str| format!("the {} has no {what}", terms.place);
        match skip {
            Some(what) if all => Cell::skipped(text(what)),
            Some(what) => Cell::fail(format!("{}, and others have it", text(what)), "use one image, or one environment, on all hosts"),
            None => Cell::skipped("others could not take part"),
        }
    })
}

/// `1.2 GB/s`.
fn speed(gbps: f64) -> String {
    match gbps {
        fast if fast >= 99.5 => format!("{fast:.0} GB/s"),
        fast if fast >= 0.095 => format!("{fast:.1} GB/s"),
        slow => format!("{:.0} MB/s", slow * 1000.0),
    }
}

fn measured(terms: &Terms<'_>, ranks: &[Heard]) -> Vec<Cell> {
    let mut pairs: Vec<((usize, usize), f64)> = ranks.iter().flat_map(|rank| rank.pairs.iter().copied()).collect();
    pairs.sort_by(|a, b| a.1.total_cmp(&b.1));
    let text = |(one, two): (usize, usize)| format!("{}-{}", name(terms, one), name(terms, two));
    let first = ranks.first();
    let backend = first.and_then(|rank| rank.backend.as_deref()).unwrap_or("?");
    let mut parts = vec![backend.to_owned(), format!("{} ranks", ranks.len())];
    parts.extend(first.and_then(|rank| rank.ring).map(|gbps| format!("all-reduce {}", speed(gbps))));
    let word = if pairs.len() > 1 { "slowest pair" } else { "pair" };
    parts.extend(pairs.first().map(|(pair, gbps)| format!("{word} {} {}", text(*pair), speed(*gbps))));
    let took = ranks.iter().map(|rank| rank.took).fold(0.0, f64::max);
    let found = format!("{} ({took:.1} s)", parts.join(", "));
    let median = pairs.get(pairs.len() / 2).map_or(0.0, |(_, gbps)| *gbps);
    let slow: Vec<_> = pairs.iter().filter(|(_, gbps)| *gbps < median / 2.0).collect();
    let listed: Vec<String> = slow.iter().take(4).map(|(pair, gbps)| format!("{} {}", text(*pair), speed(*gbps))).collect();
    every(terms, |host| {
        let of = ranks.iter().filter(|rank| rank.host == host);
        if terms.gpus && backend != "nccl" && of.clone().any(|rank| rank.torch.as_ref().is_none_or(|(_, gpus)| *gpus == 0)) {
            let torch = of.filter_map(|rank| rank.torch.as_ref()).map(|(torch, _)| torch.as_str()).next().unwrap_or("torch");
            let what = format!("torch {torch} sees no GPU, so it went over {found}");
            return Cell::warn(
                what,
                "use an image whose torch is built for CUDA; `orchestrate check --only nvidia-runtime,image-versions`",
            );
        }
        if slow.iter().any(|((one, two), _)| host == *one || host == *two) {
            let more = slow.len().saturating_sub(listed.len());
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let what = format!("slow: {}{more}; half of the pairs have {} or more", listed.join(", "), speed(median));
            return Cell::warn(what, "compare their cards, cables and switch ports: `orchestrate check --only mtu,nic,infiniband`");
        }
        Cell::pass(found.clone())
    })
}

/// Somebody did not arrive.
fn waiting(terms: &Terms<'_>, ranks: &[Heard]) -> Vec<Cell> {
    let told: Vec<u32> = ranks.iter().flat_map(|rank| rank.missing.iter().copied()).collect();
    let missing = |(number, rank): (u32, &Heard)| match told.is_empty() {
        true => rank.reached < Reached::Store || rank.failed.is_some(),
        false => told.contains(&number),
    };
    let absentees: Vec<&Heard> = (0_u32..).zip(ranks).filter(|pair| missing(*pair)).map(|(_, rank)| rank).collect();
    let mut names: Vec<&str> = absentees.iter().map(|rank| name(terms, rank.host)).collect();
    names.dedup();
    let names = names.join(" ");
    every(terms, |host| match absentees.iter().find(|rank| rank.host == host) {
        Some(rank) => absent(terms, rank, &names),
        None => Cell::pass(format!("arrived; waiting for: {names}")),
    })
}

/// A host whose rank is not at the store.
fn absent(terms: &Terms<'_>, rank: &Heard, names: &str) -> Cell {
    let store = terms.store;
    let network =
        "let the hosts connect to each other on every port: `orchestrate check --only reach-master,reach-ephemeral` tries the ways";
    let (why, hint) = match &rank.failed {
        Some((phase, why)) if phase == "import" => {
            (format!("torch cannot be imported: {why}"), "try `import torch` in the image on that host".to_owned())
        }
        Some((_, why)) if rank.host == 0 => (format!("no store at {store}: {why}"), "`ss -ltnp` there shows who listens".to_owned()),
        Some((_, why)) => (why.clone(), network.to_owned()),
        None if rank.reached == Reached::Nothing => {
            ("torch was not imported in time".to_owned(), "look for a slow disk or a hung mount: `orchestrate exec -- uptime`".to_owned())
        }
        None => (format!("it did not reach the store at {store}"), network.to_owned()),
    };
    let waiting = if names.is_empty() { String::new() } else { format!("; waiting for: {names}") };
    Cell::fail(format!("did not arrive: {why}{waiting}"), hint).showing(shown(rank))
}

/// All arrived, and then something stopped.
fn stopped(terms: &Terms<'_>, ranks: &[Heard]) -> Vec<Cell> {
    let ways = "`orchestrate check --only nic,mtu,infiniband,reach-ephemeral`; env: { NCCL_DEBUG: INFO } tells more";
    let between: Vec<(usize, usize)> = ranks.iter().filter_map(|rank| rank.trying).collect();
    if !between.is_empty() {
        let texts: Vec<String> = between.iter().map(|(one, two)| format!("{} and {}", name(terms, *one), name(terms, *two))).collect();
        let what = format!("nothing comes through between {}", texts.join(", "));
        return every(terms, |host| match between.iter().any(|(one, two)| host == *one || host == *two) {
            true => Cell::fail(what.clone(), ways).showing(of(ranks, host).map_or(Vec::new(), shown)),
            false => Cell::pass("arrived"),
        });
    }
    let made = ranks.iter().any(|rank| rank.reached >= Reached::Group);
    let what = if made { "the all-reduce did not end" } else { "the process group was not made" };
    // Who says why is worth more than who waited for the others in vain.
    let speaks = |rank: &&Heard| rank.failed.as_ref().is_some_and(|(_, why)| !why.starts_with("no end"));
    let any = ranks.iter().any(|rank| speaks(&rank));
    every(terms, |host| {
        let mut own = ranks.iter().filter(|rank| rank.host == host && rank.reached < Reached::Done);
        let Some(rank) = own.clone().find(|rank| speaks(rank)).or_else(|| own.next()) else { return Cell::pass("done") };
        match &rank.failed {
            Some((_, why)) if speaks(&rank) => Cell::fail(format!("{what}: {why}"), ways).showing(shown(rank)),
            _ if any => Cell::skipped("another host tells why"),
            Some((_, why)) => Cell::fail(format!("{what}: {why}"), ways).showing(shown(rank)),
            None => Cell::fail(format!("{what}: {}", if terms.why.is_empty() { "its rank is gone" } else { terms.why }), ways)
                .showing(shown(rank)),
        }
    })
}

fn of(ranks: &[Heard], host: usize) -> Option<&Heard> {
    ranks.iter().find(|rank| rank.host == host)
}

/// The last words of a rank that are not the script's.
fn shown(rank: &Heard) -> Vec<String> {
    rank.last.clone()
}

#[cfg(test)]
#[path = "smoke_tests.rs"]
mod tests;
