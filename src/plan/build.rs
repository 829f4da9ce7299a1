//! From inventory, job and facts to the plan of a launch: the few lines that say what a launch is.

use crate::inventory::{Become, Container, Entrypoint, Gate, Host, Inventory, Job, Registry, Start, Teardown};
use crate::plan::Plan;
use crate::plan::action::{Action, Trouble, container, launch, preflight, prepare, prove, pull};
use crate::plan::check::Answer;
use crate::plan::check::smoke::near;
use crate::plan::facts::HostFacts;
use crate::plan::launcher;
use crate::plan::run::{RunFile, RunHost, hash};
use crate::plan::site::Site;
use crate::plan::words::Phase;
use crate::plan::world::{World, fabric_address, given_gpus};

/// What is decided outside: who launches, under which id.
#[derive(Debug, Clone, Default)]
pub struct Ids {
    /// The run's id.
    pub run: String,
    /// The lock's token; `None` in a plan that is only shown.
    pub token: Option<String>,
    /// `user@laptop`.
    pub owner: String,
    /// RFC 3339.
    pub started: String,
    /// Whether fitting containers are replaced all the same.
    pub recreate: bool,
}

/// Everything that a launch is made of.
#[derive(Debug, Clone, Copy)]
pub struct Terms<'a> {
    /// Who the hosts are.
    pub inventory: &'a Inventory,
    /// What they do.
    pub job: &'a Job,
    /// What they are.
    pub facts: &'a [HostFacts],
    /// Container and launch text of each host, what "equal" is decided by.
    pub texts: &'a [(String, String)],
    /// Ids.
    pub ids: &'a Ids,
    /// Names and values.
    pub secrets: &'a [(String, String)],
    /// Names and values of the variables that hold registries' passwords.
    pub passwords: &'a [(String, String)],
    /// What the checks found; empty where nothing was checked.
    pub checks: &'a [Answer],
}

/// Seconds that a launch may take beside the wait for its master, counted from when `current` names the run: the deadlines of the run directory
/// (30), the container (180), the look from inside (120), the launcher of the master (60), what the gate is given beyond its own time (30), and
/// the launcher of a worker (60). A keeper that saw no launcher by then ends, unless the lock's holder is still at work.
const AROUND_THE_GATE: u64 = 30 + 180 + 120 + 60 + 30 + 60;

/// The site of one host of an inventory. `contained`: what the inventory says.
pub fn site(inventory: &Inventory, host: &Host, base: &str, run: &str, token: Option<String>) -> Site {
    Site {
        name: inventory.name.clone(),
        host: host.name.clone(),
        run: run.to_owned(),
        base: base.to_owned(),
        sudo: host.ssh.r#become == Become::Sudo,
        engine: inventory.engine.as_ref().and_then(|e| e.host.clone()),
        contained: inventory.engine.is_some(),
        token,
        old: false,
        log_max: 0,
        ranks: 0,
    }
}

/// The fabric address of every host, or what is wrong with each that has none.
///
/// # Errors
/// The hosts whose address cannot be told, with the remedy.
pub fn addresses(inventory: &Inventory, facts: &[HostFacts]) -> Result<Vec<String>, Vec<(usize, Trouble)>> {
    let mut troubles = Vec::new();
    let mut found = Vec::new();
    for (index, (host, facts)) in inventory.hosts.iter().zip(facts).enumerate() {
        match fabric_address(host, facts) {
            Ok(address) => found.push(address),
            Err(what) => troubles.push((index, Trouble::new(what, "set fabric_address to the one that ranks shall use"))),
        }
    }
    if troubles.is_empty() { Ok(found) } else { Err(troubles) }
}

/// The container hash of a host: its text and the keeper that would run in it.
pub fn container_hash(text: &str) -> String {
    hash(&format!("{text}\n{}", include_str!("../../assets/keeper.sh")))
}

/// The whole launch.
///
/// # Errors
/// The hosts that cannot take part, with the remedy.
pub fn launch(terms: Terms<'_>) -> Result<Plan, Vec<(usize, Trouble)>> {
    let Terms { inventory, job, facts, ids, .. } = terms;
    let addresses = addresses(inventory, facts)?;
    let world = World::new(job, addresses);
    let sites: Vec<Site> = (inventory.hosts.iter().zip(facts))
        .enumerate()
        .map(|(i, (host, facts))| {
            let mut site = site(inventory, host, &facts.run_dir, &ids.run, ids.token.clone());
            site.contained = job.hosts.get(i).is_some_and(|h| h.container.is_some());
            site.log_max = job.log_max;
            site.ranks = world.size();
            site
        })
        .collect();
    let mut plan = Plan::empty(sites);
    plan.ranks = world.ranks();
    plan.world_size = world.size();
    let cells: Vec<Cell<'_>> =
        (0..plan.sites.len()).map(|host| Cell { terms, world: &world, site: plan.sites[host].clone(), host }).collect();
    let files: Vec<RunFile> = cells.iter().map(|c| c.run_file(&plan)).collect();
    plan.run = files.first().cloned();
    for phase in [Phase::Preflight, Phase::Pull, Phase::Container, Phase::Prove, Phase::Master, Phase::Workers] {
        for (cell, file) in cells.iter().zip(&files) {
            for action in cell.actions(phase, file) {
                plan.push(cell.host, phase, action);
            }
        }
    }
    Ok(plan)
}

/// One host's column of the matrix.
struct Cell<'a> {
    terms: Terms<'a>,
    world: &'a World,
    site: Site,
    host: usize,
}

impl Cell<'_> {
    fn master_first(&self) -> bool {
        self.terms.job.launch.start == Start::MasterFirst
    }

    fn actions(&self, phase: Phase, file: &RunFile) -> Vec<Action> {
        let job = self.terms.job;
        match phase {
            Phase::Preflight => self.preflight(),
            Phase::Pull => self.part().and_then(|p| p.container.as_ref()).map_or(Vec::new(), |c| vec![Action::Pull(self.pull(c))]),
            Phase::Container => vec![self.prepare(file), self.container()],
            Phase::Prove => vec![self.prove()],
            Phase::Master if self.host == 0 && self.master_first() => {
                let mut actions = vec![self.launch()];
                if job.launch.gate == Gate::Port && self.terms.inventory.hosts.len() > 1 {
                    let timeout = job.launch.master_timeout;
                    actions.push(Action::Gate(launch::Gate {
                        site: self.site.clone(),
                        port: self.world.port.unwrap_or_default(),
                        timeout,
                    }));
                }
                actions
            }
            Phase::Workers if self.host > 0 || !self.master_first() => vec![self.launch()],
            _ => Vec::new(),
        }
    }

    fn part(&self) -> Option<&crate::inventory::JobHost> {
        self.terms.job.hosts.get(self.host)
    }

    fn facts(&self) -> Option<&HostFacts> {
        self.terms.facts.get(self.host)
    }

    fn gpus_wanted(&self) -> u32 {
        let job = self.terms.job;
        job.nproc(self.host)
            .unwrap_or_else(|| self.terms.inventory.hosts.get(self.host).zip(self.facts()).map_or(0, |(h, f)| given_gpus(h, f)))
    }

    fn preflight(&self) -> Vec<Action> {
        let host_gpus = self.terms.inventory.hosts.get(self.host).map(|h| h.gpus.clone()).unwrap_or_default();
        let mut actions = vec![Action::Check(preflight::Check {
            site: self.site.clone(),
            container: self.part().and_then(|p| p.container.clone()),
            gpus: host_gpus,
            nproc: self.gpus_wanted(),
            port: self.world.port.filter(|_| self.host == 0),
            found: preflight::Found::of(self.terms.checks, self.host),
        })];
        if self.host > 0 {
            let port = self.world.port.unwrap_or_default();
            actions.push(Action::Reach(preflight::Reach { address: self.world.master().to_owned(), port }));
        }
        actions
    }

    fn pull(&self, container: &Container) -> pull::Pull {
        let password = |registry: &Registry| {
            let found = self.terms.passwords.iter().find(|(name, _)| *name == registry.password);
            found.map_or_else(|| format!("<password {}>", registry.password), |(_, value)| value.clone())
        };
        pull::Pull {
            site: self.site.clone(),
            image: container.image.clone(),
            when: container.pull,
            login: container.registry.as_ref().map(|registry| pull::Login {
                server: registry.server.clone(),
                username: registry.username.clone(),
                variable: registry.password.clone(),
                password: password(registry),
            }),
        }
    }

    fn start(&self) -> launcher::Start {
        launcher::start(self.terms.job, self.world, &self.site, self.host, &self.terms.inventory.hosts, self.facts())
    }

    fn prepare(&self, file: &RunFile) -> Action {
        let job = self.terms.job;
        Action::Prepare(Box::new(prepare::Prepare {
            site: self.site.clone(),
            start: self.start(),
            run: file.clone(),
            start_timeout: job.launch.master_timeout.as_secs() + AROUND_THE_GATE,
            entrypoint: self
                .part()
                .and_then(|p| p.container.as_ref())
                .filter(|c| c.entrypoint == Entrypoint::Image)
                .map(|c| c.image.clone()),
            keep: job.teardown != Teardown::Always,
            log_max: job.log_max,
        }))
    }

    fn container(&self) -> Action {
        let spec = self.part().and_then(|p| p.container.clone());
        let host_gpus = self.terms.inventory.hosts.get(self.host).map(|h| h.gpus.clone()).unwrap_or_default();
        let text = self.terms.texts.get(self.host).map_or("", |t| t.0.as_str());
        let idle = self.facts().and_then(HostFacts::idle_gpus);
        Action::Container(container::Container {
            site: self.site.clone(),
            gpus: spec.as_ref().and_then(|s| container::gpus_flag(&s.gpus, &host_gpus, idle.as_deref())),
            spec,
            hash: container_hash(text),
            owner: self.terms.ids.owner.clone(),
            stop_grace: self.terms.job.launch.stop_grace.as_secs(),
            me: self.facts().map_or_else(String::new, |f| format!("{}:{}", f.uid, f.gid)),
            home: self.facts().map_or_else(String::new, |f| f.home.clone()),
            recreate: self.terms.ids.recreate,
            checks: self.facts().is_some_and(|f| !f.elsewhere.checks.is_empty()),
            // Where nothing outlives the log-out a check says so; who skips it gets what there is.
            scope: self.facts().and_then(HostFacts::scope).unwrap_or_default(),
        })
    }

    fn prove(&self) -> Action {
        let start = self.start();
        let contained_gpus =
            self.part().and_then(|p| p.container.as_ref()).is_some_and(|c| c.gpus != crate::inventory::ContainerGpus::None);
        Action::Prove(prove::Prove {
            site: self.site.clone(),
            setup: start.files.contains_key("setup"),
            needs: start.needs,
            gpus: if contained_gpus { self.gpus_wanted() } else { 0 },
            workdir: self.part().and_then(|p| p.workdir.as_deref()).map(|dir| launcher::at_home(dir, self.facts())),
        })
    }

    fn launch(&self) -> Action {
        let scope = self.facts().and_then(HostFacts::scope).unwrap_or_default();
        Action::Launch(launch::Launch { site: self.site.clone(), secrets: self.terms.secrets.to_vec(), scope })
    }

    fn run_file(&self, plan: &Plan) -> RunFile {
        let Terms { inventory, job, ids, .. } = self.terms;
        let (container_text, launch_text) = self.terms.texts.get(self.host).cloned().unwrap_or_default();
        RunFile {
            run: ids.run.clone(),
            name: inventory.name.clone(),
            owner: ids.owner.clone(),
            started: ids.started.clone(),
            hosts: inventory.hosts.iter().zip(&self.world.addresses).map(|(h, fabric)| run_host(h, fabric)).collect(),
            ranks: plan.ranks.clone(),
            world_size: plan.world_size,
            contained: self.site.contained,
            exposed: self.part().and_then(|p| p.container.as_ref()).is_some_and(|c| !c.exposures(&self.site.base).is_empty()),
            restarts: job.forgives(),
            least: job.least(),
            log_max: job.log_max,
            stop_hung: job.on_failure.stop_hung,
            hang_after: job.on_failure.hang_after.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX)),
            ready_when: job.launch.ready_when.clone(),
            stop_grace: job.launch.stop_grace.as_secs(),
            teardown: match job.teardown {
                Teardown::Always => "always",
                Teardown::OnSuccess => "on-success",
                Teardown::Never => "never",
            }
            .to_owned(),
            container_text,
            launch_text,
        }
    }
}

fn run_host(host: &Host, fabric: &str) -> RunHost {
    RunHost {
        name: host.name.clone(),
        address: host.address.clone(),
        user: host.ssh.user.clone(),
        port: host.ssh.port,
        jump: host.ssh.jump.clone(),
        sudo: host.ssh.r#become == Become::Sudo,
        fabric: fabric.to_owned(),
    }
}

/// What the facts script is asked on each host for this job.
pub fn wanted(inventory: &Inventory, job: Option<&Job>, host: usize) -> crate::plan::facts::Wanted {
    let part = job.and_then(|j| j.hosts.get(host));
    let container = part.and_then(|p| p.container.as_ref());
    crate::plan::facts::Wanted {
        docker: inventory.engine.is_some(),
        image: container.map(|c| c.image.clone()),
        mounts: container.map_or(Vec::new(), |c| c.mounts.iter().filter(|m| !m.create).map(|m| m.from.clone()).collect()),
        free_port: host == 0 && job.is_some_and(|j| j.launch.master_port.is_none()),
        idle: container.is_some_and(|c| matches!(c.gpus, crate::inventory::ContainerGpus::Count(_))),
        ports: match job {
            // Beside the job's own, those at which a smoke may meet.
            Some(job) if host == 0 => job.launch.master_port.map_or(Vec::new(), |port| [vec![port], near(port)].concat()),
            _ => Vec::new(),
        },
        peers: if job.is_some() { peers(inventory, host) } else { Vec::new() },
        left: false,
    }
}

/// The most hosts to which a host's routes are asked.
const PEERS: usize = 128;

/// The addresses of the other hosts, where a host may need its routes to them: ssh connects to an address that need not be its own.
fn peers(inventory: &Inventory, host: usize) -> Vec<String> {
    let address = |host: &Host| {
        let known = host.fabric_address.clone().or_else(|| host.address.clone())?;
        known.parse::<std::net::IpAddr>().is_ok().then_some(known)
    };
    let Some(own) = inventory.hosts.get(host).filter(|own| own.fabric_address.is_none()) else { return Vec::new() };
    let Some(here) = address(own) else { return Vec::new() };
    let others = inventory.hosts.iter().enumerate().filter(|(index, _)| *index != host).filter_map(|(_, other)| address(other));
    others.filter(|other| *other != here).take(PEERS).collect()
}
