//! The sections of an overview.

use super::docker_words::docker_words;
use super::fold::{HostWords, WordGroup, fold_words};
use super::inputs::PlanOverview;
use super::page::OverviewPage;
use crate::inventory::{ContainerGpus, ContainerSettings, GpuSelection, InventoryHost, Launcher, PullPolicy, StartGate, StartOrder};
use crate::model::phase::Phase;
use crate::plan::PlanStep;
use crate::plan::action::{Action, Observation};
use crate::plan::facts::HostFacts;
use crate::plan::launcher::{HostLaunchSpec, ManualLaunch};
use crate::plan::rank_layout::usable_gpu_count;
use crate::text::hostlist::{fold_names, fold_numbers};
use crate::text::shell_quote::quote;
use crate::text::translation::Lang;
use crate::text::width::JOINED;

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
/// Of the run itself, not of the job.
const INTERNAL_PREFIX: &str = "ORCH_";

pub(super) fn push_summary(page: &mut OverviewPage, overview: &PlanOverview<'_>) {
    let PlanOverview { plan, job, hosts, lang, .. } = overview;
    let name = plan.hosts.first().map_or("", |context| context.name.as_str());
    let ranks = if plan.world_size == 0 { rank_per_gpu(*lang).to_owned() } else { lang.count(plan.world_size as usize, "rank") };
    let host_count = lang.count(hosts.len(), "host");
    page.line(&lang.tr_fill("{}: {}, {}, started by {}", &[name, &host_count, &ranks, job.launch.launcher.as_str()]));
    page.row(lang.tr("hosts"), &host_groups(overview), 3);
    let specs = launch_specs(overview);
    let master = specs.first().and_then(|spec| spec.env.get("ORCH_MASTER_ADDR").zip(spec.env.get("ORCH_MASTER_PORT")));
    if let (Some((address, port)), Some(first)) = (master, hosts.first()) {
        let address = if address.contains(':') && !address.contains('<') { format!("[{address}]") } else { address.clone() };
        let place = lang.tr_fill("{}, ranks meet at {}:{}", &[&first.name, &address, port]);
        page.row("master", &if is_free_port(overview) { place + lang.tr(" (a free port: `up` picks its own)") } else { place }, 2);
    }
    page.row(lang.tr("ranks"), &rank_ranges(overview), 3);
}

/// Of tasks alone: no rank starts.
pub(super) fn push_tasks_summary(page: &mut OverviewPage, overview: &PlanOverview<'_>) {
    let PlanOverview { plan, hosts, lang, .. } = overview;
    let name = plan.hosts.first().map_or("", |context| context.name.as_str());
    page.line(&lang.tr_fill("{}: {}, the tasks of `prepare` alone", &[name, &lang.count(hosts.len(), "host")]));
    page.row(lang.tr("hosts"), &fold_names(&hosts.iter().map(|host| host.name.clone()).collect::<Vec<_>>()), 3);
}

/// Whether the master's port is one that was free when the master was asked: the next command gets another.
fn is_free_port(overview: &PlanOverview<'_>) -> bool {
    let free = overview.facts.and_then(|facts| facts.first()).and_then(|facts| facts.free_port);
    free.is_some() && free == overview.job.launch.master_port
}

/// Where the number of GPUs is not known.
fn rank_per_gpu(lang: Lang) -> &'static str {
    lang.tr("one rank per GPU")
}

/// `gpu[01-02]: 8 GPUs and 5 ranks each`, equal hosts together.
fn host_groups(overview: &PlanOverview<'_>) -> String {
    let mut groups: Vec<([String; 2], Vec<String>)> = Vec::new();
    for (at, host) in overview.hosts.iter().enumerate() {
        let resources = host_resources(overview, at, host);
        match groups.iter_mut().find(|(known, _)| *known == resources) {
            Some((_, names)) => names.push(host.name.clone()),
            None => groups.push((resources, vec![host.name.clone()])),
        }
    }
    let lang = overview.lang;
    let texts = groups.into_iter().map(|([gpus, ranks], names)| {
        if names.len() > 1 && ranks != rank_per_gpu(lang) {
            return lang.tr_fill("{}: {} and {} each", &[&fold_names(&names), &gpus, &ranks]);
        }
        format!("{}{}{}", fold_names(&names), lang.colon(), lang.tr_fill("{}, {}", &[&gpus, &ranks]))
    });
    texts.collect::<Vec<_>>().join(lang.semicolon())
}

/// GPUs and ranks of a host.
fn host_resources(overview: &PlanOverview<'_>, at: usize, host: &InventoryHost) -> [String; 2] {
    let lang = overview.lang;
    let facts = overview.facts.and_then(|facts| facts.get(at));
    let container = overview.job.hosts.get(at).and_then(|host| host.container.as_ref());
    let gpus = match (&host.gpus, facts) {
        _ if container.is_some_and(|container| container.gpus == ContainerGpus::None) => lang.tr("no GPU").to_owned(),
        (GpuSelection::List(list), _) => {
            let indexes = fold_numbers(list);
            if list.len() == 1 { lang.tr_fill("GPU {}", &[&indexes]) } else { lang.tr_fill("GPUs {}", &[&indexes]) }
        }
        (GpuSelection::Count(gpus), _) => lang.count(*gpus as usize, "GPU"),
        (GpuSelection::Any, Some(facts)) => lang.count(usable_gpu_count(host, facts) as usize, "GPU"),
        (GpuSelection::Any, None) => lang.tr("every GPU").to_owned(),
    };
    let ranks = match (overview.job.launch.launcher, overview.job.nproc(at)) {
        (Launcher::Script, _) => lang.count(1, "rank"),
        (_, Some(ranks)) => lang.count(ranks as usize, "rank"),
        (_, None) => rank_per_gpu(lang).to_owned(),
    };
    [gpus, ranks]
}

/// `0-7 on gpu01, 8-15 on gpu02`, or why the places of the ranks are not known yet.
pub(crate) fn rank_ranges(overview: &PlanOverview<'_>) -> String {
    let PlanOverview { plan, job, hosts, lang, .. } = overview;
    if job.launch.launcher.has_dynamic_ranks() {
        return lang.tr("the rendezvous assigns them at the start (c10d)").to_owned();
    }
    if plan.ranks.is_empty() {
        return lang.tr("known with the number of GPUs: --facts asks the hosts").to_owned();
    }
    let of_host = |(at, host): (usize, &InventoryHost)| {
        let ranks: Vec<u32> = plan.ranks.iter().filter(|info| info.host as usize == at).map(|info| info.rank).collect();
        lang.tr_fill("{} on {}", &[&fold_numbers(&ranks), &host.name])
    };
    let all: Vec<String> = hosts.iter().enumerate().map(of_host).collect();
    match all.as_slice() {
        [first, second, .., last] if all.len() > MAX_RANK_HOSTS => [first, second, "…", last].join(lang.comma()),
        _ => all.join(lang.comma()),
    }
}

/// Whether a command was shortened: that of a container leaves out what a person would not type.
pub(super) fn push_container(page: &mut OverviewPage, overview: &PlanOverview<'_>) -> bool {
    let mut all = Vec::new();
    for step in &overview.plan.steps {
        if let Action::StartContainer(container) = &step.action
            && let Some(spec) = &container.spec
        {
            all.push(HostWords::of_host(overview, step.host, docker_words(container, spec)));
        }
    }
    let lang = overview.lang;
    if all.is_empty() {
        let tasks_only = overview.plan.run_record.as_ref().is_some_and(|record| record.tasks_only);
        let bare = if tasks_only {
            lang.tr("none: tasks run on the hosts themselves")
        } else {
            lang.tr("none: the launcher runs on the hosts themselves")
        };
        page.row(lang.tr("container"), bare, 1);
        return false;
    }
    let settings: Vec<&ContainerSettings> = overview.job.hosts.iter().filter_map(|host| host.container.as_ref()).collect();
    let mut images: Vec<String> = settings.iter().map(|spec| describe_image(lang, spec)).collect();
    images.dedup();
    page.row(lang.tr("image"), &images.join(lang.semicolon()), 3);
    push_commands(
        page,
        (lang.tr("container"), lang.tr(", labels and the mount of the run directory not shown")),
        &fold_words(&all),
        overview,
    );
    true
}

fn describe_image(lang: Lang, spec: &ContainerSettings) -> String {
    match spec.pull {
        PullPolicy::Missing => lang.tr_fill("{} (pulled where it is missing)", &[&spec.image]),
        PullPolicy::Always => lang.tr_fill("{} (pulled every time)", &[&spec.image]),
        PullPolicy::Never => lang.tr_fill("{} (pull: never, it must be on the hosts)", &[&spec.image]),
    }
}

/// Whether a command was shortened.
pub(super) fn push_launch(page: &mut OverviewPage, overview: &PlanOverview<'_>) -> bool {
    let specs = launch_specs(overview);
    let words = |(at, spec): (usize, &&HostLaunchSpec)| HostWords::of_host(overview, at, spec.manual_launch.words().to_vec());
    let all: Vec<HostWords> = specs.iter().enumerate().map(words).collect();
    let lang = overview.lang;
    page.row(lang.tr("start"), &start_order(overview), 2);
    let mut workdirs: Vec<&str> = overview.job.hosts.iter().filter_map(|host| host.workdir.as_deref()).collect();
    workdirs.dedup();
    let per_rank = specs.iter().any(|spec| matches!(spec.manual_launch, ManualLaunch::PerRank(..)));
    let label = if per_rank { lang.tr("each rank") } else { lang.tr("launch") };
    let in_workdir = (!workdirs.is_empty()).then(|| lang.tr_fill(", in {}", &[&workdirs.join(lang.semicolon())]));
    let is_shortened = push_commands(page, (label, &in_workdir.unwrap_or_default()), &fold_words(&all), overview);
    if let Some(setup) = &overview.job.launch.setup {
        let lines: Vec<&str> = setup.trim().lines().collect();
        let more = if lines.len() > 1 { lang.tr_fill(" … ({} lines)", &[&lines.len().to_string()]) } else { String::new() };
        page.row(lang.tr("setup"), &format!("{}{more}", lines.first().copied().unwrap_or_default()), 1);
    }
    is_shortened
}

fn start_order(overview: &PlanOverview<'_>) -> String {
    let launch = &overview.job.launch;
    let lang = overview.lang;
    let Some(master) = overview.hosts.first().filter(|_| overview.hosts.len() > 1) else { return lang.tr("at once").to_owned() };
    match (launch.start, launch.gate, launch.master_port) {
        (StartOrder::Together, ..) => lang.tr("all hosts together").to_owned(),
        (_, StartGate::MasterPort, Some(port)) => {
            lang.tr_fill("{} first; the others when port {} listens there", &[&master.name, &port.to_string()])
        }
        (_, StartGate::MasterPort, None) => lang.tr_fill("{} first; the others when the master's port listens there", &[&master.name]),
        (_, StartGate::MasterStarted, _) => lang.tr_fill("{} first; the others when its process runs", &[&master.name]),
        (_, StartGate::None, _) => lang.tr_fill("{} first; the others right after it", &[&master.name]),
    }
}

/// `more` follows the hosts of the first group.
fn push_commands(page: &mut OverviewPage, (label, more): (&str, &str), groups: &[WordGroup], overview: &PlanOverview<'_>) -> bool {
    let (lang, hosts) = (overview.lang, overview.hosts.len());
    let max_lines = if groups.len() > 1 { MAX_GROUP_COMMAND_LINES } else { MAX_COMMAND_LINES };
    let mut is_shortened = false;
    for (at, group) in groups.iter().take(MAX_GROUPS).enumerate() {
        let is_everywhere = group.hosts.len() == hosts && hosts > 1;
        let place = if is_everywhere { lang.tr("on every host").to_owned() } else { lang.tr_fill("on {}", &[&fold_names(&group.hosts)]) };
        let (label, more) = if at == 0 { (label, more) } else { ("", "") };
        page.row(label, &format!("{place}{more}"), 1);
        is_shortened |= page.command(&group.words, max_lines);
    }
    if groups.len() > MAX_GROUPS {
        let others: Vec<String> = groups.iter().skip(MAX_GROUPS).flat_map(|group| group.hosts.iter().cloned()).collect();
        page.row("", &lang.tr_fill("… and other ones on {}", &[&fold_names(&others)]), 1);
        is_shortened = true;
    }
    is_shortened
}

/// The variables of the inventory and of the launcher that every rank of a host has.
pub(super) fn push_environment(page: &mut OverviewPage, overview: &PlanOverview<'_>) {
    let specs = launch_specs(overview);
    let words = |(at, spec): (usize, &&HostLaunchSpec)| {
        let own = spec.env_defaults.iter().chain(&spec.env).filter(|(name, _)| !name.starts_with(INTERNAL_PREFIX));
        HostWords::of_host(overview, at, own.map(|(name, value)| env_word(name, value)).collect())
    };
    let all: Vec<HostWords> = specs.iter().enumerate().map(words).collect();
    let (groups, lang) = (fold_words(&all), overview.lang);
    if let Some(group) = groups.first().filter(|group| !group.words.is_empty()) {
        let more =
            if groups.len() > 1 { lang.tr_fill(" (on {}; other hosts differ)", &[&fold_names(&group.hosts)]) } else { String::new() };
        let words: Vec<String> = group.words.iter().map(|word| word.replace(' ', &JOINED.to_string())).collect();
        page.row(lang.tr("env"), &format!("{}{more}", words.join(" ")), 4);
    }
    if !overview.job.secret_names.is_empty() {
        let names = overview.job.secret_names.join(", ");
        page.row(lang.tr("secrets"), &lang.tr_fill("{} (never in a command or on a disk)", &[&names]), 2);
    }
}

/// A value that begins with `=`, as NCCL has it for exact names, would look like a mistake.
fn env_word(name: &str, value: &str) -> String {
    if value.starts_with('=') && quote(value) == value { format!("{name}='{value}'") } else { format!("{name}={}", quote(value)) }
}

pub(super) fn push_phases(page: &mut OverviewPage, overview: &PlanOverview<'_>) {
    let lang = overview.lang;
    let tasks: Vec<&str> = overview.job.tasks.iter().map(|task| task.name.as_str()).collect();
    if !tasks.is_empty() {
        page.row(lang.tr("tasks"), &tasks.join(", "), 1);
    }
    let has_containers = overview.plan.hosts.iter().any(|context| context.in_container);
    let name = |phase: &Phase| match phase {
        Phase::Container if !has_containers => lang.tr("keeper (watches the ranks, instead of a container)"),
        phase => phase.name(),
    };
    let mut names: Vec<&str> = overview.plan.phases().iter().map(name).collect();
    names.dedup();
    page.row(lang.tr("phases"), &names.join(", "), 2);
    let Some(facts) = overview.facts else { return };
    // The steps that depend on what is on the hosts.
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    for step in &overview.plan.steps {
        let host = overview.plan.hosts.get(step.host).map_or("", |context| context.host.as_str());
        let state = facts.get(step.host).and_then(|facts| describe_observation(lang, &step.action, facts, host));
        let Some(state) = state else { continue };
        match found.iter_mut().find(|(known, _)| *known == state) {
            Some((_, hosts)) => hosts.push(host.to_owned()),
            None => found.push((state, vec![host.to_owned()])),
        }
    }
    for (at, (state, hosts)) in found.iter().take(MAX_FOUND).enumerate() {
        let state = if let [host] = hosts.as_slice() { state.replace("<host>", host) } else { state.clone() };
        let hosts = if hosts.len() > 1 && hosts.len() == facts.len() { lang.tr("all hosts").to_owned() } else { fold_names(hosts) };
        page.row(if at == 0 { lang.tr("found") } else { "" }, &format!("{hosts}{}{state}", lang.colon()), 2);
    }
    if found.len() > MAX_FOUND {
        page.row("", &lang.tr_fill("… and {} more: -v", &[&(found.len() - MAX_FOUND).to_string()]), 1);
    }
}

/// What is on the host for this step; `None`: it runs in any case.
fn describe_observation(lang: Lang, action: &Action, facts: &HostFacts, host: &str) -> Option<String> {
    match action.observe(facts) {
        Observation::Satisfied(_) if matches!(action, Action::VerifyHostFacts(_)) => None,
        Observation::Satisfied(note) if note.is_empty() => Some(lang.tr_fill("{}: ok", &[&lang.message(action.title())])),
        Observation::Satisfied(note) => Some(lang.tr_fill("{}: ok ({})", &[&lang.message(action.title()), &lang.message(&note)])),
        Observation::Needed(why) if why.is_empty() => None,
        Observation::Needed(why) => Some(lang.tr_fill("{}: needed ({})", &[&lang.message(action.title()), &lang.message(&why)])),
        Observation::Impossible(issues) => {
            let issues: Vec<_> = issues.iter().map(|issue| lang.message(&issue.message).into_owned()).collect();
            Some(lang.tr_fill("IMPOSSIBLE: {}", &[&issues.join(lang.semicolon()).replace(host, "<host>")]))
        }
    }
}

fn has_impossible_step(overview: &PlanOverview<'_>) -> bool {
    let Some(facts) = overview.facts else { return false };
    let is_impossible =
        |step: &PlanStep| facts.get(step.host).is_some_and(|facts| matches!(step.action.observe(facts), Observation::Impossible(_)));
    overview.plan.steps.iter().any(is_impossible)
}

pub(super) fn push_effect(page: &mut OverviewPage, overview: &PlanOverview<'_>) {
    let Some((effect, differences)) = overview.effect.split_first() else { return };
    let lang = overview.lang;
    page.row(lang.tr("now"), &lang.message(effect), 3);
    if has_impossible_step(overview) {
        page.row("", lang.tr("but not while something above is IMPOSSIBLE: `check` says what to do"), 2);
    }
    for difference in differences.iter().take(MAX_SHOWN_DIFFERENCES) {
        page.row("", &lang.tr_fill("differs: {}", &[&lang.message(difference)]), 1);
    }
    if differences.len() > MAX_SHOWN_DIFFERENCES {
        let more = (differences.len() - MAX_SHOWN_DIFFERENCES).to_string();
        page.row("", &lang.tr_fill("… and {} more (`up --diff` shows all)", &[&more]), 1);
    }
}

/// One per host, in node-rank order.
fn launch_specs<'a>(overview: &PlanOverview<'a>) -> Vec<&'a HostLaunchSpec> {
    overview.plan.steps.iter().filter_map(|step| step.action.launch_spec()).collect()
}
