//! `reach-ephemeral`: ports of the kernel's choice, both ways: NCCL and gloo need them.

use super::probe::Probe;
use super::scene::Scene;
use super::{Area, Cell, Check};

/// See its `looks`.
pub(super) const CHECK: Check = Check {
    name: "reach-ephemeral",
    area: Area::Network,
    looks: "between the master and a worker, or from a host to the next, a connection to a port of the kernel's choice does not come about",
    needs: &[Probe::Reach],
    judge,
};

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    let name = |n: usize| scene.inventory.hosts.get(n).map_or("?", |h| h.name.as_str());
    scene.each(|host| {
        let labels: Vec<(usize, String)> = (0..scene.inventory.hosts.len()).map(|n| (n, format!("ephemeral>{n}"))).collect();
        let (mut open, mut untold, mut bad) = (0, None, Vec::new());
        for (n, label) in &labels {
            let told = host.told.of("way", label).next();
            let Some((listens, rest)) = told.and_then(|t| t.split_once(' ')) else { continue };
            let (result, why) = rest.split_once(' ').unwrap_or((rest, ""));
            match result {
                "open" => open += 1,
                "refused" if listens == "yes" => bad.push((*n, "refused though it listens (REJECT)".to_owned())),
                "blocked" => bad.push((*n, format!("{why} (DROP?)"))),
                _ => untold = Some(why.to_owned()),
            }
        }
        if let Some((_, why)) = bad.first() {
            let names: Vec<&str> = bad.iter().map(|(n, _)| name(*n)).collect();
            let more = if names.len() > 4 { format!(" and {} more", names.len() - 4) } else { String::new() };
            return Cell::fail(
                format!(
                    "no way to {}{more} on a port of the kernel's choice: {why}",
                    names.iter().take(4).copied().collect::<Vec<_>>().join(", ")
                ),
                "let all TCP between the hosts through their firewalls: NCCL and gloo listen on ports that the kernel chooses",
            )
            .showing(bad.iter().map(|(n, why)| format!("to {}: {why}", name(*n))));
        }
        match (open, untold, scene.inventory.hosts.len()) {
            (_, _, 1) => Cell::skipped("one host alone"),
            (0, Some(why), _) => Cell::skipped(why),
            (0, None, _) => Cell::skipped("it was not tried"),
            (n, _, _) => Cell::pass(format!("{n} ways open")),
        }
    })
}
