// A series over time by uPlot, which draws on a canvas: the same figures are in the table beside it.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { span } from "./format";
import { theme } from "./theme";

export interface Series {
    name: string;
    /** The custom property of page.css that has its colour. */
    colour: string;
    values: (number | null)[];
    /** Points without a line. */
    points?: boolean;
}

const HEIGHT = 190;

export function Chart({ label, seconds, series }: { label: string; seconds: number[]; series: Series[] }) {
    const place = useRef<HTMLDivElement>(null);
    const chart = useRef<uPlot | null>(null);
    const data = [seconds, ...series.map((one) => one.values)] as uPlot.AlignedData;
    const shape = `${theme.value} ${series.map((one) => one.name).join()}`;

    useEffect(() => {
        const element = place.current;
        if (!element) return;
        const styles = getComputedStyle(element);
        const colour = (name: string) => styles.getPropertyValue(name).trim();
        const axis = { stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
        const plot = new uPlot(
            {
                width: element.clientWidth || 300,
                height: HEIGHT,
                cursor: { points: { size: 6 } },
                legend: { show: true, live: true },
                scales: { x: { time: true }, y: { range: (_plot, _low, high) => [0, Math.max(high * 1.1, 1)] } },
                axes: [{ ...axis, values: (_plot, ticks) => ticks.map((tick) => new Date(tick * 1000).toLocaleTimeString("en-GB")), space: 80 }, { ...axis, size: 64, values: (_plot, ticks) => ticks.map((tick) => span(tick)) }],
                series: [
                    { value: (_plot, value) => (value === null ? "–" : new Date(value * 1000).toLocaleTimeString("en-GB")) },
                    ...series.map((one) => ({
                        label: one.name,
                        stroke: colour(one.colour),
                        width: one.points ? 0 : 1.5,
                        points: { show: one.points ?? false, size: 5, fill: colour(one.colour) },
                        value: (_plot: uPlot, value: number | null) => span(value),
                    })),
                ],
            },
            data,
            element,
        );
        chart.current = plot;
        const observer = new ResizeObserver(() => plot.setSize({ width: element.clientWidth || 300, height: HEIGHT }));
        observer.observe(element);
        return () => {
            observer.disconnect();
            plot.destroy();
            chart.current = null;
        };
    }, [shape]);

    useEffect(() => {
        chart.current?.setData(data);
    });
    return <div class="chart" ref={place} role="img" aria-label={label} />;
}
