//! A dashboard without a terminal, for benchmarks and fuzzing: it draws like the real one and counts the output bytes.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};

use crate::report::RunFold;
use crate::text::sanitize::Sanitizer;

use super::app::App;
use super::compact_backend::CompactBackend;
use super::feed::{DashboardRole, FeedMessage};
use super::timeline::EventDescriber;
use super::ui::Screen;

/// Folds the events of a dashboard without a reporter.
#[derive(Default)]
pub(super) struct LocalFold {
    fold: RunFold,
    describer: EventDescriber,
    is_outdated: bool,
}

impl LocalFold {
    /// Passes an event on as the reporter does.
    pub(super) fn handle_message(&mut self, app: &mut App, message: FeedMessage) {
        let FeedMessage::Event(event) = &message else {
            app.handle_message(message);
            return;
        };
        self.fold.apply(event);
        let entry = self.describer.describe(event, self.fold.state());
        self.is_outdated = true;
        app.handle_message(message);
        if let Some(entry) = entry {
            app.handle_message(FeedMessage::Timeline(entry));
        }
    }

    /// Gives the dashboard a snapshot, as before a frame.
    pub(super) fn update_snapshot(&mut self, app: &mut App) {
        if std::mem::take(&mut self.is_outdated) {
            app.handle_message(FeedMessage::Snapshot(self.fold.snapshot()));
        }
    }
}

/// A dashboard that draws into memory.
pub struct HeadlessDashboard {
    app: App,
    fold: LocalFold,
    terminal: Terminal<CompactBackend<ByteCounter>>,
    written_bytes: Arc<AtomicUsize>,
}

struct ByteCounter(Arc<AtomicUsize>);

impl Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.fetch_add(bytes.len(), Ordering::Relaxed);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl HeadlessDashboard {
    /// Creates a dashboard with this many columns and rows.
    ///
    /// # Errors
    /// If the terminal cannot be created.
    pub fn new(width: u16, height: u16) -> io::Result<HeadlessDashboard> {
        let written_bytes = Arc::new(AtomicUsize::new(0));
        let options = TerminalOptions { viewport: Viewport::Fixed(Rect::new(0, 0, width, height)) };
        let terminal = Terminal::with_options(CompactBackend::new(ByteCounter(written_bytes.clone())), options)?;
        let app = App::new(DashboardRole::Observer, Sanitizer::default());
        Ok(HeadlessDashboard { app, fold: LocalFold::default(), terminal, written_bytes })
    }

    /// Applies a message.
    pub fn handle_message(&mut self, message: FeedMessage) {
        self.fold.handle_message(&mut self.app, message);
    }

    pub fn show_screen(&mut self, screen: Screen) {
        self.app.ui.screen = screen;
    }

    /// Draws a frame and returns the number of output bytes.
    ///
    /// # Errors
    /// If drawing fails.
    pub fn draw_frame(&mut self) -> io::Result<usize> {
        self.fold.update_snapshot(&mut self.app);
        let before = self.written_bytes.load(Ordering::Relaxed);
        self.terminal.draw(|frame| self.app.draw(frame))?;
        Ok(self.written_bytes.load(Ordering::Relaxed) - before)
    }

    /// Draws a frame and returns the text of its cells.
    ///
    /// # Errors
    /// If drawing fails.
    pub fn draw_cells(&mut self) -> io::Result<String> {
        self.fold.update_snapshot(&mut self.app);
        let frame = self.terminal.draw(|frame| self.app.draw(frame))?;
        Ok(frame.buffer.content.iter().map(|cell| cell.symbol()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, EventKind, GpuSample, RunInfo};

    const HOST_COUNT: u32 = 64;

    /// Samples of these hosts at work for one second; every value differs from the second before.
    fn send_gpu_samples(dashboard: &mut HeadlessDashboard, hosts: u32, second: u32) {
        let at = 1_795_262_400_000 + i64::from(second) * 1000;
        for host in 0..hosts {
            let gpu = |index: u32| {
                let wave = ((host * 7 + index * 13 + second * 5) % 40) as f32;
                GpuSample {
                    index,
                    utilization: Some(60.0 + wave),
                    memory_used: Some(60_000.0 + wave * 100.0),
                    memory_total: Some(81_559.0),
                    power: Some(500.0 + wave * 5.0),
                    power_limit: Some(700.0),
                    temperature: Some(50.0 + wave / 2.0),
                    ..GpuSample::default()
                }
            };
            let kind = EventKind::Gpus { host, gpus: (0..8).map(gpu).collect() };
            dashboard.handle_message(FeedMessage::Event(Event { seq: 10, at, kind }));
        }
        dashboard.handle_message(FeedMessage::Tick(at));
    }

    /// The bytes of each frame in which every GPU of these hosts has changed.
    fn frame_bytes(hosts: u32, screen: Screen) -> Vec<usize> {
        let mut dry = HeadlessDashboard::new(200, 60).expect("a dashboard");
        let names = (0..hosts).map(|host| format!("gpu{host:02}")).collect();
        let info = RunInfo { name: "many".to_owned(), hosts: names, ..RunInfo::default() };
        dry.handle_message(FeedMessage::Event(Event { seq: 1, at: 1_795_262_400_000, kind: EventKind::RunStarted(info) }));
        for host in 0..hosts {
            let kind = EventKind::HostConnected { host, clock_offset: 0, uncertainty: 1 };
            dry.handle_message(FeedMessage::Event(Event { seq: 2, at: 1_795_262_400_000, kind }));
        }
        dry.show_screen(screen);
        for second in 0..60 {
            send_gpu_samples(&mut dry, hosts, second);
        }
        dry.draw_frame().expect("drawn");
        (60..64)
            .map(|second| {
                send_gpu_samples(&mut dry, hosts, second);
                dry.draw_frame().expect("drawn")
            })
            .collect()
    }

    #[test]
    fn frame_with_512_changed_gpus_is_small() {
        for bytes in frame_bytes(HOST_COUNT, Screen::Gpus) {
            assert!(bytes > 2_000, "everything changed");
            assert!(bytes <= 6 << 10, "{bytes} bytes");
        }
        for bytes in frame_bytes(HOST_COUNT, Screen::Overview) {
            assert!(bytes <= 6 << 10, "rows: {bytes} bytes");
        }
    }

    /// Full panes and the heat map scroll their histories.
    #[test]
    fn frame_of_full_panes_is_bounded() {
        let overview = [4, 8, 16].map(|hosts| (hosts, Screen::Overview));
        // From nine hosts on the matrix, with a history of each host where columns are free.
        let gpus = [4, 8, 9, 16, 32, 48].map(|hosts| (hosts, Screen::Gpus));
        for (hosts, screen) in overview.into_iter().chain(gpus) {
            for bytes in frame_bytes(hosts, screen) {
                assert!(bytes <= 16 << 10, "{hosts} hosts, {screen:?}: {bytes} bytes");
            }
        }
    }
}
