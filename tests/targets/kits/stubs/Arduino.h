/* What the sketch takes of Arduino's core. */
#include <stdint.h>
struct Port {
    void begin(unsigned long);
    void print(const char*);
    void print(long);
    void println(unsigned long);
    void println(const char*);
};
extern Port Serial;
extern "C" unsigned long micros(void);
extern "C" void delay(unsigned long);
