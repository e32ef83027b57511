// Predictions of WEKA's classifiers, with their defaults, on given splits: java -cp 'weka/*' Splits.java FOLDER.
//
// FOLDER holds NAME.arff, the features of one function and last its peak in bytes, and NAME.splits, lines of
// "id widths algorithms train test" with lists of commas: intervals' widths in bytes, and rows by number. Prints a line
// "p NAME id width algorithm intervals" a split, and "t NAME algorithm p50_ns p99_ns fit_ms" a function for predictions and
// a fit on all of its rows at 16 million bytes.

import java.io.File;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeSet;
import weka.classifiers.AbstractClassifier;
import weka.classifiers.trees.HoeffdingTree;
import weka.classifiers.trees.J48;
import weka.classifiers.trees.RandomForest;
import weka.classifiers.trees.RandomTree;
import weka.core.Attribute;
import weka.core.Instances;
import weka.core.converters.ConverterUtils.DataSource;

public final class Splits {
    static final long TIMED_WIDTH = 16_000_000;
    static final int TIMED_MIN = 3_000;

    static AbstractClassifier made(String algorithm) {
        return switch (algorithm) {
            case "J48" -> new J48();
            case "RandomForest" -> new RandomForest();
            case "RandomTree" -> new RandomTree();
            case "HoeffdingTree" -> new HoeffdingTree();
            default -> throw new IllegalArgumentException(algorithm);
        };
    }

    /** The rows with the interval of their peak as class. */
    static Instances classified(Instances all, long width) {
        int peak = all.numAttributes() - 1;
        TreeSet<Long> seen = new TreeSet<>();
        for (int row = 0; row < all.size(); row++) {
            seen.add(((long) all.get(row).value(peak) - 1) / width);
        }
        ArrayList<String> labels = new ArrayList<>();
        seen.forEach(interval -> labels.add(Long.toString(interval)));
        if (labels.size() == 1) {
            // WEKA refuses a class of one value; no row has this one.
            labels.add(Long.toString(seen.first() + 1));
        }
        Instances rows = new Instances(all);
        rows.insertAttributeAt(new Attribute("interval", labels), peak + 1);
        for (int row = 0; row < rows.size(); row++) {
            rows.get(row).setValue(peak + 1, Long.toString(((long) all.get(row).value(peak) - 1) / width));
        }
        rows.deleteAttributeAt(peak);
        rows.setClassIndex(peak);
        return rows;
    }

    static Instances some(Instances rows, String list) {
        Instances chosen = new Instances(rows, 0);
        for (String row : list.split(",")) {
            chosen.add(rows.get(Integer.parseInt(row)));
        }
        return chosen;
    }

    static String label(AbstractClassifier model, Instances rows, int row) throws Exception {
        return rows.classAttribute().value((int) model.classifyInstance(rows.get(row)));
    }

    static void time(String name, String algorithm, Instances rows) throws Exception {
        long begun = System.nanoTime();
        AbstractClassifier model = made(algorithm);
        model.buildClassifier(rows);
        double fit = (System.nanoTime() - begun) / 1e6;
        int rounds = Math.max(2, TIMED_MIN / rows.size());
        long[] took = new long[rounds * rows.size()];
        for (int round = 0, at = 0; round < rounds; round++) {
            for (int row = 0; row < rows.size(); row++) {
                long before = System.nanoTime();
                model.classifyInstance(rows.get(row));
                took[at++] = System.nanoTime() - before;
            }
        }
        // The first half warms the machine up.
        long[] warm = Arrays.copyOfRange(took, took.length / 2, took.length);
        Arrays.sort(warm);
        System.out.printf("t %s %s %d %d %.3f%n", name, algorithm, warm[warm.length / 2], warm[warm.length * 99 / 100], fit);
    }

    public static void main(String[] arguments) throws Exception {
        File[] files = new File(arguments[0]).listFiles((folder, file) -> file.endsWith(".arff"));
        Arrays.sort(files);
        for (File file : files) {
            String name = file.getName().replace(".arff", "");
            Instances all = DataSource.read(file.getPath());
            Map<Long, Instances> byWidth = new HashMap<>();
            TreeSet<String> algorithms = new TreeSet<>();
            for (String line : Files.readAllLines(new File(file.getParentFile(), name + ".splits").toPath())) {
                String[] words = line.split(" ");
                for (String widthText : words[1].split(",")) {
                    long width = Long.parseLong(widthText);
                    Instances rows = byWidth.computeIfAbsent(width, wanted -> classified(all, wanted));
                    Instances train = some(rows, words[3]);
                    Instances test = some(rows, words[4]);
                    for (String algorithm : words[2].split(",")) {
                        algorithms.add(algorithm);
                        AbstractClassifier model = made(algorithm);
                        model.buildClassifier(train);
                        String[] said = new String[test.size()];
                        for (int row = 0; row < said.length; row++) {
                            said[row] = label(model, test, row);
                        }
                        System.out.println("p " + name + " " + words[0] + " " + width + " " + algorithm + " " + String.join(",", said));
                    }
                }
            }
            for (String algorithm : algorithms) {
                time(name, algorithm, byWidth.computeIfAbsent(TIMED_WIDTH, wanted -> classified(all, wanted)));
            }
            System.out.flush();
        }
    }
}
