//! `limits`: what a process may have.

use super::probe::Probe;
use super::scene::Scene;
use super::{Area, Cell, Check};

/// See its `looks`.
pub(super) const CHECK: Check = Check {
    name: "limits",
    area: Area::Host,
    looks: "fewer than 1024 open files are allowed where ranks run, or memory cannot be locked on a host with InfiniBand",
    needs: &[Probe::Host],
    judge,
};

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    scene.each(|host| {
        let contained = host.container().is_some();
        let inside = host.told.answered(Probe::Inside) && host.told.one("inside_failed").is_none();
        if contained && !inside {
            return Cell::skipped("it is seen inside the container alone: `orchestrate check`, or --preflight full");
        }
        let of = |name: &str| host.told.one(&format!("{}_{name}", if contained { "inside" } else { "limit" }));
        let Some(files) = of("nofile") else { return Cell::skipped("this shell tells no limits") };
        let what = format!("{files} open files, {} locked memory", of("memlock").unwrap_or("?"));
        if files.parse::<u64>().is_ok_and(|n| n < 1024) {
            let hint = if contained { "container.args: [--ulimit=nofile=1048576]" } else { "raise nofile in /etc/security/limits.conf" };
            return Cell::warn(what, hint);
        }
        if !host.told.all("ib").is_empty() && of("memlock").is_some_and(|l| l != "unlimited") {
            let hint = if contained {
                "leave --ulimit=memlock out of container.args; where docker itself refuses to give it, give dockerd CAP_SYS_RESOURCE or LimitMEMLOCK=infinity"
            } else {
                "set memlock to unlimited in /etc/security/limits.conf"
            };
            return Cell::warn(format!("{what}: InfiniBand needs unlimited"), hint);
        }
        Cell::pass(what)
    })
}
