//! `smoke`: the all-reduce of `check --smoke`. It is a run of its own (`assets/smoke.py` on every host); this module reads its lines, and the
//! judgement over all ranks. It is judged when it has ended, and not with the other checks.

use super::context::CheckContext;
use super::smoke_rank_log::{SmokeRankLog, SmokeStage};
use super::{CheckArea, CheckResult, PreflightCheck};

pub(crate) const CHECK_NAME: &str = "smoke";

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: CHECK_NAME,
    area: CheckArea::Network,
    description: "only with --smoke: an all-reduce of about 30 s over all hosts in the image (NCCL, or gloo without GPUs) shows missing hosts, where it blocks, and the bandwidth of the ring and of each pair",
    probes: &[],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    context.check_each_host(|_| CheckResult::skipped("runs only with --smoke"))
}

/// What each process runs: the job's interpreter with our script, or the word that there is none. `None` is a placeholder for the interpreter.
pub(crate) const COMMAND_TEMPLATE: [Option<&str>; 6] = [
    Some("sh"),
    Some("-c"),
    Some(
        "command -v \"$1\" >/dev/null 2>&1 || { echo 'orch-smoke {\"smoke\": \"skip\", \"why\": \"python\"}'; exit 0; }\nexec \"$1\" -u -c \"$2\"",
    ),
    Some("smoke"),
    None,
    Some(include_str!("../../assets/smoke.py")),
];

/// The context beside the ranks' logs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SmokeContext<'a> {
    pub hosts: &'a [String],
    /// Where they meet: `10.0.0.1:29501`.
    pub store_address: &'a str,
    /// What holds torch: `image`, `host`.
    pub environment: &'a str,
    /// Whether the ranks were given GPUs.
    pub uses_gpus: bool,
    /// Why the run failed, if it did.
    pub failure_reason: &'a str,
}

/// A cell for each host, from the reports of every rank, in the order of the ranks.
pub(crate) fn evaluate_smoke(context: &SmokeContext<'_>, ranks: &[SmokeRankLog]) -> Vec<CheckResult> {
    if ranks.iter().any(|rank| rank.skip_reason.is_some()) {
        return missing_dependency_results(context, ranks);
    }
    if !ranks.is_empty() && ranks.iter().all(|rank| rank.stage == SmokeStage::Done) {
        return speed_results(context, ranks);
    }
    let is_silent = |rank: &SmokeRankLog| rank.stage == SmokeStage::NotStarted && rank.failure.is_none() && rank.other_lines.is_empty();
    let Some(first) = ranks.first().filter(|_| !ranks.iter().all(is_silent)) else {
        let reason = if context.failure_reason.is_empty() { "no rank reported anything" } else { context.failure_reason };
        return result_per_host(context, |_| CheckResult::fail(format!("did not start: {reason}"), ""));
    };
    if first.stage < SmokeStage::StoreReady && first.failure.is_some() {
        // Without the store no rank can arrive: the others are not to blame.
        return result_per_host(context, |host| {
            if host == first.host { missing_rank_result(context, first, "") } else { CheckResult::skipped("the store did not start") }
        });
    }
    if ranks.iter().any(|rank| rank.stage < SmokeStage::Arrived) && ranks.iter().all(|rank| rank.stage < SmokeStage::GroupReady) {
        return missing_rank_results(context, ranks);
    }
    stalled_results(context, ranks)
}

fn result_per_host(context: &SmokeContext<'_>, result_for: impl FnMut(usize) -> CheckResult) -> Vec<CheckResult> {
    (0..context.hosts.len()).map(result_for).collect()
}

fn host_name<'a>(context: &SmokeContext<'a>, host: usize) -> &'a str {
    context.hosts.get(host).map_or("?", String::as_str)
}

fn missing_dependency_results(context: &SmokeContext<'_>, ranks: &[SmokeRankLog]) -> Vec<CheckResult> {
    let all = ranks.iter().all(|rank| rank.skip_reason.is_some());
    result_per_host(context, |host| {
        let skip = ranks.iter().filter(|rank| rank.host == host).find_map(|rank| rank.skip_reason.as_deref());
        let text = |what: &str| format!("the {} has no {what}", context.environment);
        match skip {
            Some(what) if all => CheckResult::skipped(text(what)),
            Some(what) => {
                CheckResult::fail(format!("{}, but other hosts have it", text(what)), "use one image, or one environment, on all hosts")
            }
            None => CheckResult::skipped("other hosts could not take part"),
        }
    })
}

/// `1.2 GB/s`.
fn format_speed(gbps: f64) -> String {
    match gbps {
        fast if fast >= 99.5 => format!("{fast:.0} GB/s"),
        fast if fast >= 0.095 => format!("{fast:.1} GB/s"),
        slow => format!("{:.0} MB/s", slow * 1000.0),
    }
}

fn speed_results(context: &SmokeContext<'_>, ranks: &[SmokeRankLog]) -> Vec<CheckResult> {
    let mut pairs: Vec<((usize, usize), f64)> = ranks.iter().flat_map(|rank| rank.pair_gbps.iter().copied()).collect();
    pairs.sort_by(|a, b| a.1.total_cmp(&b.1));
    let text = |(one, two): (usize, usize)| format!("{}-{}", host_name(context, one), host_name(context, two));
    let first = ranks.first();
    let backend = first.and_then(|rank| rank.backend.as_deref()).unwrap_or("?");
    let mut parts = vec![backend.to_owned(), format!("{} ranks", ranks.len())];
    parts.extend(first.and_then(|rank| rank.ring_gbps).map(|gbps| format!("all-reduce {}", format_speed(gbps))));
    let word = if pairs.len() > 1 { "slowest pair" } else { "pair" };
    parts.extend(pairs.first().map(|(pair, gbps)| format!("{word} {} {}", text(*pair), format_speed(*gbps))));
    let took = ranks.iter().map(|rank| rank.seconds).fold(0.0, f64::max);
    let found = format!("{} ({took:.1} s)", parts.join(", "));
    let median = pairs.get(pairs.len() / 2).map_or(0.0, |(_, gbps)| *gbps);
    let slow: Vec<_> = pairs.iter().filter(|(_, gbps)| *gbps < median / 2.0).collect();
    let listed: Vec<String> = slow.iter().take(4).map(|(pair, gbps)| format!("{} {}", text(*pair), format_speed(*gbps))).collect();
    result_per_host(context, |host| {
        let of = ranks.iter().filter(|rank| rank.host == host);
        if context.uses_gpus && backend != "nccl" && of.clone().any(|rank| rank.torch.as_ref().is_none_or(|(_, gpus)| *gpus == 0)) {
            let torch = of.filter_map(|rank| rank.torch.as_ref()).map(|(torch, _)| torch.as_str()).next().unwrap_or("torch");
            let what = format!("torch {torch} sees no GPU, so the test used {found}");
            return CheckResult::warn(
                what,
                "use an image whose torch is built for CUDA; `orchestrate check --only nvidia-runtime,image-versions`",
            );
        }
        if slow.iter().any(|((one, two), _)| host == *one || host == *two) {
            let more = slow.len().saturating_sub(listed.len());
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let what = format!("slow: {}{more}; half of the pairs have {} or more", listed.join(", "), format_speed(median));
            return CheckResult::warn(what, "compare their cards, cables and switch ports: `orchestrate check --only mtu,nic,infiniband`");
        }
        CheckResult::pass(found.clone())
    })
}

/// Some ranks did not arrive.
fn missing_rank_results(context: &SmokeContext<'_>, ranks: &[SmokeRankLog]) -> Vec<CheckResult> {
    let reported: Vec<u32> = ranks.iter().flat_map(|rank| rank.missing_ranks.iter().copied()).collect();
    let missing = |(number, rank): (u32, &SmokeRankLog)| match reported.is_empty() {
        true => rank.stage < SmokeStage::StoreReady || rank.failure.is_some(),
        false => reported.contains(&number),
    };
    let absentees: Vec<&SmokeRankLog> = (0_u32..).zip(ranks).filter(|pair| missing(*pair)).map(|(_, rank)| rank).collect();
    let mut names: Vec<&str> = absentees.iter().map(|rank| host_name(context, rank.host)).collect();
    names.dedup();
    let names = names.join(" ");
    result_per_host(context, |host| match absentees.iter().find(|rank| rank.host == host) {
        Some(rank) => missing_rank_result(context, rank, &names),
        None => CheckResult::pass(format!("arrived; waiting for: {names}")),
    })
}

/// A host whose rank is not at the store.
fn missing_rank_result(context: &SmokeContext<'_>, rank: &SmokeRankLog, names: &str) -> CheckResult {
    let store = context.store_address;
    let network =
        "let the hosts connect to each other on every port: `orchestrate check --only reach-master,reach-ephemeral` tries the connections";
    let (why, hint) = match &rank.failure {
        Some((phase, why)) if phase == "import" => {
            (format!("torch cannot be imported: {why}"), "try `import torch` in the image on that host".to_owned())
        }
        Some((_, why)) if rank.host == 0 => {
            (format!("no store at {store}: {why}"), "`sudo ss -ltnp` on that host shows what listens".to_owned())
        }
        Some((_, why)) => (why.clone(), network.to_owned()),
        None if rank.stage == SmokeStage::NotStarted => {
            ("importing torch took too long".to_owned(), "check for a slow disk or a hung mount: `orchestrate exec -- uptime`".to_owned())
        }
        None => (format!("could not reach the store at {store}"), network.to_owned()),
    };
    let waiting = if names.is_empty() { String::new() } else { format!("; waiting for: {names}") };
    CheckResult::fail(format!("did not arrive: {why}{waiting}"), hint).with_evidence(rank.other_lines.clone())
}

/// All arrived, and then something stopped.
fn stalled_results(context: &SmokeContext<'_>, ranks: &[SmokeRankLog]) -> Vec<CheckResult> {
    let shares_gpu = |rank: &SmokeRankLog| rank.failure.as_ref().is_some_and(|(_, why)| why.contains("Duplicate GPU detected"));
    let hint = match ranks.iter().any(shares_gpu) {
        true => "two ranks use one GPU: `orchestrate exec -- nvidia-smi -L` shows whether two hosts are one machine",
        false => "`orchestrate check --only nic,mtu,infiniband,reach-ephemeral`; env: { NCCL_DEBUG: INFO } shows more",
    };
    let between: Vec<(usize, usize)> = ranks.iter().filter_map(|rank| rank.testing_pair).collect();
    if !between.is_empty() {
        let texts: Vec<String> =
            between.iter().map(|(one, two)| format!("{} and {}", host_name(context, *one), host_name(context, *two))).collect();
        let what = format!("no data passes between {}", texts.join(", "));
        return result_per_host(context, |host| match between.iter().any(|(one, two)| host == *one || host == *two) {
            true => CheckResult::fail(what.clone(), hint)
                .with_evidence(ranks.iter().find(|rank| rank.host == host).map_or(Vec::new(), |rank| rank.other_lines.clone())),
            false => CheckResult::pass("arrived"),
        });
    }
    let made = ranks.iter().any(|rank| rank.stage >= SmokeStage::GroupReady);
    let what = if made { "the all-reduce did not finish" } else { "the process group was not created" };
    // A rank that reports a reason comes before ranks that waited for the others in vain.
    let has_reason = |rank: &&SmokeRankLog| rank.failure.as_ref().is_some_and(|(_, why)| !why.starts_with("no end"));
    let any = ranks.iter().any(|rank| has_reason(&rank));
    result_per_host(context, |host| {
        let mut own = ranks.iter().filter(|rank| rank.host == host && rank.stage < SmokeStage::Done);
        let Some(rank) = own.clone().find(|rank| has_reason(rank)).or_else(|| own.next()) else { return CheckResult::pass("done") };
        if any && !has_reason(&rank) {
            return CheckResult::skipped("see the finding of another host");
        }
        let fallback = if context.failure_reason.is_empty() { "its rank exited" } else { context.failure_reason };
        let why = rank.failure.as_ref().map_or(fallback, |(_, why)| why.as_str());
        CheckResult::fail(format!("{what}: {why}"), hint).with_evidence(rank.other_lines.clone())
    })
}

#[cfg(test)]
#[path = "smoke_tests.rs"]
mod tests;
