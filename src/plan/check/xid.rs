//! `xid`: what the kernel says of the GPUs.

use super::probe::Probe;
use super::scene::Scene;
use super::{Area, Cell, Check};

/// See its `looks`.
pub(super) const CHECK: Check = Check {
    name: "xid",
    area: Area::Gpu,
    looks: "the kernel's log has an Xid of the hardware: a GPU fell off the bus (79: a failure), memory, NVLink or firmware failed (warnings)",
    needs: &[Probe::Gpus],
    judge,
};

/// Xids that are the hardware's, with what they mean (docs.nvidia.com/deploy/xid-errors). Those of an application (13, 31, 43, 45) are not here.
const HARDWARE: [(u32, &str); 13] = [
    (48, "double bit memory error"),
    (63, "memory row or page to be replaced"),
    (64, "memory row or page could not be replaced"),
    (74, "NVLink error"),
    (79, "the GPU fell off the bus"),
    (92, "many corrected memory errors"),
    (94, "contained memory error"),
    (95, "uncontained memory error"),
    (119, "GSP firmware gives no answer"),
    (120, "GSP firmware error"),
    (140, "uncorrected memory error"),
    (149, "NVLink fatal error"),
    (154, "a reset or reboot is needed"),
];

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    scene.each(|host| {
        if !host.wants_gpus() {
            return Cell::skipped("no GPUs are used");
        }
        if host.told.one("kernel_log").is_none() {
            return Cell::skipped(format!("{} may not read the kernel's log", host.facts.user));
        }
        let number = |line: &str| line.split("): ").nth(1)?.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u32>().ok();
        let found: Vec<(u32, &str, &String)> = host
            .told
            .all("xid")
            .iter()
            .filter_map(|line| HARDWARE.iter().find(|(n, _)| number(line) == Some(*n)).map(|(n, why)| (*n, *why, line)))
            .collect();
        let lines = found.iter().map(|(_, _, line)| (*line).clone());
        match found.iter().find(|(n, _, _)| *n == 79).or(found.last()) {
            Some((79, why, _)) => {
                Cell::fail(format!("Xid 79: {why}"), "reboot the host, and have the GPU looked at if it comes again").showing(lines)
            }
            Some((n, why, _)) => {
                Cell::warn(format!("Xid {n}: {why}"), "`nvidia-smi -q` there; reset the GPU or reboot the host").showing(lines)
            }
            None => Cell::pass(format!("nothing of the hardware in {}", host.told.one("kernel_log").unwrap_or("its log"))),
        }
    })
}
