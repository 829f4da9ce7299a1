//! The sections of an overview.

use super::docker_words::docker_words;
use super::fold::{HostWords, WordGroup, fold_words};
use super::inputs::PlanOverview;
use super::page::OverviewPage;
use crate::inventory::{ContainerSettings, GpuSelection, InventoryHost, Launcher, PullPolicy, StartGate, StartOrder};
use crate::plan::action::{Action, Observation};
use crate::plan::facts::HostFacts;
use crate::plan::launcher::{HostLaunchSpec, ManualLaunch};
use crate::plan::rank_layout::usable_gpu_count;
use crate::text::hostlist::{fold_names, fold_numbers};

/// Different commands of different hosts; further ones are counted.
const MAX_GROUPS: usize = 2;
/// Lines of a command that all hosts have, and of each where hosts differ.
const MAX_COMMAND_LINES: usize = 8;
const MAX_GROUP_COMMAND_LINES: usize = 4;
/// With more hosts, only the first two and the last are listed.
const MAX_RANK_HOSTS: usize = 6;
/// Different states of steps on the hosts.
const MAX_FOUND: usize = 5;
const MAX_SHOWN_DIFFERENCES: usize = 3;
/// Where the number of GPUs is not known.
const RANK_PER_GPU: &str = "one rank per GPU";
/// Of the run itself, not of the job.
const INTERNAL_VARIABLES: &str = "ORCH_";

pub(super) fn push_summary(page: &mut OverviewPage, overview: &PlanOverview<'_>) {
    let PlanOverview { plan, job, hosts, .. } = overview;
    let name = plan.hosts.first().map_or("", |context| context.name.as_str());
    let ranks = match plan.world_size {
        0 => RANK_PER_GPU.to_owned(),
        1 => "1 rank".to_owned(),
        count => format!("{count} ranks"),
    };
    let noun = if hosts.len() == 1 { "host" } else { "hosts" };
    page.line(&format!("{name}: {} {noun}, {ranks}, started by {}", hosts.len(), job.launch.launcher.as_str()));
    page.row("hosts", &host_groups(overview), 3);
    let specs = launch_specs(overview);
    let master = specs.first().and_then(|spec| spec.env.get("ORCH_MASTER_ADDR").zip(spec.env.get("ORCH_MASTER_PORT")));
    if let (Some((address, port)), Some(first)) = (master, hosts.first()) {
        let address = if address.contains(':') && !address.contains('<') { format!("[{address}]") } else { address.clone() };
        page.row("master", &format!("{}, ranks meet at {address}:{port}", first.name), 2);
    }
    page.row("ranks", &rank_ranges(overview), 3);
}

/// Of tasks alone: no rank starts.
pub(super) fn push_tasks_summary(page: &mut OverviewPage, overview: &PlanOverview<'_>) {
    let PlanOverview { plan, hosts, .. } = overview;
    let name = plan.hosts.first().map_or("", |context| context.name.as_str());
    let noun = if hosts.len() == 1 { "host" } else { "hosts" };
    page.line(&format!("{name}: {} {noun}, the tasks of `prepare` alone", hosts.len()));
    page.row("hosts", &fold_names(&hosts.iter().map(|host| host.name.clone()).collect::<Vec<_>>()), 3);
}

/// `gpu[01-02]: 8 GPUs each, 5 ranks each`, equal hosts together.
fn host_groups(overview: &PlanOverview<'_>) -> String {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for (at, host) in overview.hosts.iter().enumerate() {
        let text = host_resources(overview, at, host);
        match groups.iter_mut().find(|(known, _)| *known == text) {
            Some((_, names)) => names.push(host.name.clone()),
            None => groups.push((text, vec![host.name.clone()])),
        }
    }
    let texts = groups.into_iter().map(|(text, names)| {
        let each = if names.len() > 1 && !text.ends_with(RANK_PER_GPU) { " each" } else { "" };
        format!("{}: {text}{each}", fold_names(&names))
    });
    texts.collect::<Vec<_>>().join("; ")
}

fn host_resources(overview: &PlanOverview<'_>, at: usize, host: &InventoryHost) -> String {
    let plural = |count: u32, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    let facts = overview.facts.and_then(|facts| facts.get(at));
    let gpus = match (&host.gpus, facts) {
        (GpuSelection::List(list), _) => format!("GPU{} {}", if list.len() == 1 { "" } else { "s" }, fold_numbers(list)),
        (GpuSelection::Count(count), _) => plural(*count, "GPU"),
        (GpuSelection::Any, Some(facts)) => plural(usable_gpu_count(host, facts), "GPU"),
        (GpuSelection::Any, None) => "every GPU".to_owned(),
    };
    let ranks = match (overview.job.launch.launcher, overview.job.nproc(at)) {
        (Launcher::Script, _) => "1 rank".to_owned(),
        (_, Some(count)) => plural(count, "rank"),
        (_, None) => RANK_PER_GPU.to_owned(),
    };
    format!("{gpus}, {ranks}")
}

fn rank_ranges(overview: &PlanOverview<'_>) -> String {
    let PlanOverview { plan, job, hosts, .. } = overview;
    if job.launch.launcher.has_dynamic_ranks() {
        return "the rendezvous assigns them at the start (c10d)".to_owned();
    }
    if plan.ranks.is_empty() {
        return "known with the number of GPUs: --facts asks the hosts".to_owned();
    }
    let of_host = |(at, host): (usize, &InventoryHost)| {
        let ranks: Vec<u32> = plan.ranks.iter().filter(|info| info.host as usize == at).map(|info| info.rank).collect();
        format!("{} on {}", fold_numbers(&ranks), host.name)
    };
    let all: Vec<String> = hosts.iter().enumerate().map(of_host).collect();
    match all.as_slice() {
        [first, second, .., last] if all.len() > MAX_RANK_HOSTS => format!("{first}, {second}, …, {last}"),
        _ => all.join(", "),
    }
}

/// Whether a command was shortened.
pub(super) fn push_container(page: &mut OverviewPage, overview: &PlanOverview<'_>) -> bool {
    let mut all = Vec::new();
    for step in &overview.plan.steps {
        if let Action::StartContainer(container) = &step.action
            && let Some(spec) = &container.spec
        {
            all.push(host_words(overview, step.host, docker_words(container, spec)));
        }
    }
    if all.is_empty() {
        let tasks_only = overview.plan.run_record.as_ref().is_some_and(|record| record.tasks_only);
        let what = if tasks_only { "tasks run" } else { "the launcher runs" };
        page.row("container", &format!("none: {what} on the hosts themselves"), 1);
        return false;
    }
    let settings: Vec<&ContainerSettings> = overview.job.hosts.iter().filter_map(|host| host.container.as_ref()).collect();
    let mut images: Vec<String> = settings.iter().map(|spec| describe_image(spec)).collect();
    images.dedup();
    page.row("image", &images.join("; "), 3);
    push_commands(page, "container", &fold_words(&all), overview.hosts.len())
}

fn describe_image(spec: &ContainerSettings) -> String {
    let pull = match spec.pull {
        PullPolicy::Missing => "pulled where it is missing",
        PullPolicy::Always => "pulled every time",
        PullPolicy::Never => "never pulled",
    };
    format!("{} ({pull})", spec.image)
}

/// Whether a command was shortened.
pub(super) fn push_launch(page: &mut OverviewPage, overview: &PlanOverview<'_>) -> bool {
    let specs = launch_specs(overview);
    let words = |(at, spec): (usize, &&HostLaunchSpec)| match &spec.manual_launch {
        ManualLaunch::Command(words) | ManualLaunch::PerRank(words, _) => host_words(overview, at, words.clone()),
    };
    let all: Vec<HostWords> = specs.iter().enumerate().map(words).collect();
    page.row("start", &start_order(overview), 2);
    let per_rank = specs.iter().any(|spec| matches!(spec.manual_launch, ManualLaunch::PerRank(..)));
    let label = if per_rank { "each rank" } else { "launch" };
    let is_shortened = push_commands(page, label, &fold_words(&all), overview.hosts.len());
    if let Some(setup) = &overview.job.launch.setup {
        let lines: Vec<&str> = setup.trim().lines().collect();
        let more = if lines.len() > 1 { format!(" … ({} lines)", lines.len()) } else { String::new() };
        page.row("setup", &format!("{}{more}", lines.first().copied().unwrap_or_default()), 1);
    }
    is_shortened
}

fn start_order(overview: &PlanOverview<'_>) -> String {
    let launch = &overview.job.launch;
    let Some(master) = overview.hosts.first().filter(|_| overview.hosts.len() > 1) else { return "at once".to_owned() };
    let port = launch.master_port.map_or_else(|| "the master's port".to_owned(), |port| format!("port {port}"));
    match (launch.start, launch.gate) {
        (StartOrder::Together, _) => "all hosts together".to_owned(),
        (_, StartGate::MasterPort) => format!("{} first; the others when {port} listens there", master.name),
        (_, StartGate::MasterStarted) => format!("{} first; the others when its process runs", master.name),
        (_, StartGate::None) => format!("{} first; the others right after it", master.name),
    }
}

fn push_commands(page: &mut OverviewPage, label: &str, groups: &[WordGroup], hosts: usize) -> bool {
    let max_lines = if groups.len() > 1 { MAX_GROUP_COMMAND_LINES } else { MAX_COMMAND_LINES };
    let mut is_shortened = false;
    for (at, group) in groups.iter().take(MAX_GROUPS).enumerate() {
        let place = if group.hosts.len() == hosts && hosts > 1 { "every host".to_owned() } else { fold_names(&group.hosts) };
        page.row(if at == 0 { label } else { "" }, &format!("on {place}"), 1);
        is_shortened |= page.command(&group.words, max_lines);
    }
    if groups.len() > MAX_GROUPS {
        page.row("", &format!("… and {} more that differ", groups.len() - MAX_GROUPS), 1);
        is_shortened = true;
    }
    is_shortened
}

/// The variables of the inventory and of the launcher that every rank of a host has.
pub(super) fn push_environment(page: &mut OverviewPage, overview: &PlanOverview<'_>) {
    let specs = launch_specs(overview);
    let words = |(at, spec): (usize, &&HostLaunchSpec)| {
        let own = spec.env_defaults.iter().chain(&spec.env).filter(|(name, _)| !name.starts_with(INTERNAL_VARIABLES));
        host_words(overview, at, own.map(|(name, value)| format!("{name}={value}")).collect())
    };
    let all: Vec<HostWords> = specs.iter().enumerate().map(words).collect();
    let groups = fold_words(&all);
    if let Some(group) = groups.first().filter(|group| !group.words.is_empty()) {
        let more = if groups.len() > 1 { format!(" (on {}; other hosts differ)", fold_names(&group.hosts)) } else { String::new() };
        page.row("env", &format!("{}{more}", group.words.join(" ")), 4);
    }
    if !overview.job.secret_names.is_empty() {
        page.row("secrets", &format!("{} (never in a command or on a disk)", overview.job.secret_names.join(", ")), 2);
    }
}

pub(super) fn push_phases(page: &mut OverviewPage, overview: &PlanOverview<'_>) {
    let tasks: Vec<&str> = overview.job.tasks.iter().map(|task| task.name.as_str()).collect();
    if !tasks.is_empty() {
        page.row("tasks", &tasks.join(", "), 1);
    }
    let mut names: Vec<&str> = overview.plan.phases().iter().map(|phase| phase.name()).collect();
    names.dedup();
    page.row("phases", &names.join(", "), 2);
    let Some(facts) = overview.facts else { return };
    // The steps that depend on what is on the hosts.
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    for step in &overview.plan.steps {
        let host = overview.plan.hosts.get(step.host).map_or("", |context| context.host.as_str());
        let state = facts.get(step.host).and_then(|facts| describe_observation(&step.action, facts, host));
        let Some(state) = state else { continue };
        match found.iter_mut().find(|(known, _)| *known == state) {
            Some((_, hosts)) => hosts.push(host.to_owned()),
            None => found.push((state, vec![host.to_owned()])),
        }
    }
    for (at, (state, hosts)) in found.iter().take(MAX_FOUND).enumerate() {
        let hosts = if hosts.len() > 1 && hosts.len() == facts.len() { "all hosts".to_owned() } else { fold_names(hosts) };
        page.row(if at == 0 { "found" } else { "" }, &format!("{hosts}: {state}"), 2);
    }
    if found.len() > MAX_FOUND {
        page.row("", &format!("… and {} more: -v", found.len() - MAX_FOUND), 1);
    }
}

/// What is on the host for this step; `None`: it runs in any case.
fn describe_observation(action: &Action, facts: &HostFacts, host: &str) -> Option<String> {
    match action.observe(facts) {
        Observation::Satisfied(_) if matches!(action, Action::VerifyHostFacts(_)) => None,
        Observation::Satisfied(note) if note.is_empty() => Some(format!("{}: not needed", action.title())),
        Observation::Satisfied(note) => Some(format!("{}: not needed ({note})", action.title())),
        Observation::Needed(why) if why.is_empty() => None,
        Observation::Needed(why) => Some(format!("{}: needed ({why})", action.title())),
        Observation::Impossible(issues) => {
            let issues: Vec<&str> = issues.iter().map(|issue| issue.message.as_str()).collect();
            Some(format!("IMPOSSIBLE: {}", issues.join("; ").replace(host, "<host>")))
        }
    }
}

pub(super) fn push_effect(page: &mut OverviewPage, overview: &PlanOverview<'_>) {
    let Some((effect, differences)) = overview.effect.split_first() else { return };
    page.row("now", effect, 3);
    for difference in differences.iter().take(MAX_SHOWN_DIFFERENCES) {
        page.row("", &format!("differs: {difference}"), 1);
    }
    if differences.len() > MAX_SHOWN_DIFFERENCES {
        page.row("", &format!("… and {} more (`up --diff` shows all)", differences.len() - MAX_SHOWN_DIFFERENCES), 1);
    }
}

/// One per host, in node-rank order.
fn launch_specs<'a>(overview: &PlanOverview<'a>) -> Vec<&'a HostLaunchSpec> {
    let spec = |step: &'a crate::plan::PlanStep| match &step.action {
        Action::WriteRunFiles(write) => Some(&write.launch_spec),
        _ => None,
    };
    overview.plan.steps.iter().filter_map(spec).collect()
}

fn host_words(overview: &PlanOverview<'_>, host: usize, words: Vec<String>) -> HostWords {
    HostWords {
        host: overview.hosts.get(host).map_or_else(String::new, |host| host.name.clone()),
        address: overview
            .plan
            .run_record
            .as_ref()
            .and_then(|record| record.hosts.get(host))
            .map_or_else(String::new, |host| host.fabric_address.clone()),
        node_rank: u32::try_from(host).unwrap_or(u32::MAX),
        words,
    }
}
