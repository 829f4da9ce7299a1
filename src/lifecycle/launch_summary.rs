//! What a launch runs, as the dashboard shows it before and during the launch.

use crate::inventory::{InventoryHost, Job};
use crate::lifecycle::launch_request::LaunchTarget;
use crate::plan::Plan;
use crate::plan::overview::{PlanOverview, first_commands, rank_ranges};
use crate::text::plural::count_noun;
use crate::text::translation::Lang;

/// `2, 16 ranks`; where the rendezvous numbers the ranks, how many each host starts.
fn describe_ranks(job: &Job, hosts: usize, world_size: u32) -> String {
    if !job.launch.launcher.has_dynamic_ranks() {
        return format!("{hosts}, {}", count_noun(world_size as usize, "rank"));
    }
    let counts: Vec<Option<u32>> = (0..hosts).map(|host| job.nproc(host)).collect();
    let each = match counts.first() {
        Some(Some(first)) if counts.iter().all(|count| *count == Some(*first)) => count_noun(*first as usize, "rank"),
        _ => "the ranks of its GPUs".to_owned(),
    };
    format!("{hosts} × {each}, numbered by torchrun")
}

/// A fact a line: hosts and ranks, image, what differs from a live run, and the first host's commands.
pub(crate) fn describe_plan(
    target: &LaunchTarget,
    hosts: &[InventoryHost],
    plan: &Plan,
    differences: &[String],
    lang: Lang,
) -> Vec<String> {
    let mut images: Vec<&str> =
        target.job.hosts.iter().filter_map(|host| host.container.as_ref()).map(|container| container.image.as_str()).collect();
    images.sort_unstable();
    images.dedup();
    let overview = PlanOverview { plan, job: &target.job, hosts, facts: Some(&target.facts), effect: &[], offers_rank_option: false, lang };
    let [command, container] = first_commands(plan, lang);
    let mut lines = vec![
        format!("hosts     {}", describe_ranks(&target.job, plan.hosts.len(), plan.world_size)),
        format!("ranks     {}", rank_ranges(&overview)),
        format!("image     {}", if images.is_empty() { "none: on the hosts themselves".to_owned() } else { images.join(", ") }),
    ];
    lines.extend(differences.iter().map(|difference| format!("differs   {difference}")));
    // Those of the other hosts have other numbers and names.
    let first = plan.hosts.first().filter(|_| plan.hosts.len() > 1).map_or_else(String::new, |context| format!("{}: ", context.host));
    let [command, container] = [command, container].map(|command| command.map(|command| [first.as_str(), &command].concat()));
    lines.extend(command.map(|command| format!("command   {command}")));
    lines.extend(container.map(|command| format!("container {command}")));
    lines
}
